"""Formats log-probabilities for the OpenAI API: the target's own, before temperature."""

import codecs
from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from draft_node.http.answer.choices import Json
from draft_node.service.token_text import PromptTokens, Token


class Offsets:
    """Computes tokens' offsets in their text, in characters; a token inside a character has that character's offset."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def of(self, tokens: Sequence[Token]) -> list[int]:
        offsets = []
        for token in tokens:
            offsets.append(self._num_chars)
            self._num_chars += len(self._decoder.decode(token.raw))
        return offsets


def for_completion(tokens: Sequence[Token], offsets: Offsets, echoed: Sequence[Token] = ()) -> Json:
    """Formats a completion's log-probabilities. echoed: the prompt's tokens; the first has no log-probability."""
    first, told = echoed[:1], [*echoed[1:], *tokens]
    none = [None for _ in first]
    return {
        "tokens": [name(token) for token in (*first, *told)],
        "token_logprobs": [*none, *map(_logprob, told)],
        "top_logprobs": chain(none, map(_by_name, told)),
        "text_offset": offsets.of([*first, *told]),
    }


def echoed(prompt: PromptTokens, num_top: int) -> list[Token]:
    return [replace(token, top=token.top[:num_top]) for token in prompt.read()]


def for_chat(tokens: Sequence[Token]) -> Json:
    """Returns `logprobs` of a chat's choice: each token with its alternatives."""
    return {"content": map(_with_alternatives, tokens), "refusal": None}


def _with_alternatives(token: Token) -> Json:
    tops = [{"token": other.text, "logprob": _logprob(other), "bytes": list(other.raw)} for other in token.top]
    return {"token": token.text, "logprob": _logprob(token), "bytes": list(token.raw), "top_logprobs": tops}


def name(token: Token) -> str:
    """Returns a token's text; for part of a character its bytes in hex, so that names of such tokens differ."""
    try:
        return token.raw.decode() or token.text
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)


def _by_name(token: Token) -> dict[str, float]:
    """Returns log-probabilities by name: the token itself and its alternatives."""
    named = {name(token): _logprob(token)}
    for other in token.top:
        named.setdefault(name(other), _logprob(other))
    return named


def _logprob(token: Token) -> float:
    if token.logprob is None:
        raise RuntimeError("a token came without the log-probability that was asked for")
    return token.logprob
