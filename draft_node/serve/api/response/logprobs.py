"""Log-probabilities of tokens in the two shapes of OpenAI's API. They are the target's own, before temperature."""

import codecs
from collections.abc import Sequence

from draft_node.serve.api.response.responses import ChatLogprobs, Logprobs, TokenLogprob, TopLogprob
from draft_node.text.tokens import Alternative, Token


class Offsets:
    """Finds where tokens begin in their text, in characters; a token that continues a character begins with it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def of(self, tokens: Sequence[Token]) -> list[int]:
        offsets = []
        for token in tokens:
            offsets.append(self._num_chars)
            self._num_chars += len(self._decoder.decode(token.raw))
        return offsets


def for_completion(tokens: Sequence[Token], offsets: Offsets) -> Logprobs:
    return Logprobs(
        tokens=[name(token) for token in tokens],
        token_logprobs=[_logprob(token) for token in tokens],
        top_logprobs=[_by_name(token) for token in tokens],
        text_offset=offsets.of(tokens),
    )


def for_chat(tokens: Sequence[Token]) -> ChatLogprobs:
    return ChatLogprobs(
        content=[
            TokenLogprob(
                token=token.text,
                logprob=_logprob(token),
                bytes=list(token.raw),
                top_logprobs=[
                    TopLogprob(token=other.text, logprob=other.logprob, bytes=list(other.raw)) for other in token.top
                ],
            )
            for token in tokens
        ]
    )


def name(token: Token | Alternative) -> str:
    """A token's text; that of a part of a character shows its bytes, so that two of them differ."""
    try:
        return token.raw.decode() or token.text
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)


def _by_name(token: Token) -> dict[str, float]:
    """The token itself, and the likeliest."""
    named = {name(token): _logprob(token)}
    for other in token.top:
        named.setdefault(name(other), other.logprob)
    return named


def _logprob(token: Token) -> float:
    if token.logprob is None:
        raise RuntimeError("a token came without the log-probability that was asked for")
    return token.logprob
