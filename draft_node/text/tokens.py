"""Tokens of a text, or of a prompt, and what the target tells of them. Knows nothing about sessions, nodes or HTTP."""

from dataclasses import dataclass

import msgspec

from draft_node.text.token_text import TokenTexts
from goodspeed.wire.messages import TokenLogprobs


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """A token that could have stood at a position, with the target's own log-probability of it.

    Garbage collection leaves these out: an answer has very many, and a collection holds the event loop.
    """

    id: int
    text: str
    raw: bytes
    logprob: float


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token of a text; its own text and bytes may be a part of a character (`token_text.py`)."""

    id: int
    text: str
    raw: bytes
    logprob: float | None = None  # None where it is not asked for, and of a prompt's first token
    top: tuple[Alternative, ...] = ()
    local: bool = False  # the draft model wrote it alone


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Made into tokens only when somebody reads them: a long prompt takes a second, which no event loop has."""

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]  # of each token but the first
    texts: TokenTexts

    def read(self) -> list[Token]:
        first, *others = self.ids
        told = zip(others, self.logprobs, strict=True)
        return [token_of(self.texts, first), *(token_of(self.texts, token, one) for token, one in told)]


def token_of(texts: TokenTexts, token_id: int, told: TokenLogprobs | None = None, *, local: bool = False) -> Token:
    """A token with its own text, and the log-probabilities that are told of it."""
    text, raw = texts[token_id]
    if told is None:
        return Token(token_id, text, raw, local=local)
    ranked = zip(told.top_ids, told.top_logprobs, strict=True)
    top = tuple(Alternative(other, *texts[other], logprob) for other, logprob in ranked)
    return Token(token_id, text, raw, told.logprob, top, local)
