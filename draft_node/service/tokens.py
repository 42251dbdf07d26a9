"""Tokens of a text or a prompt: each one's own text and bytes, and its log-probabilities.

A token of byte-level BPE, or one like `<0x0A>`, may be a part of a character: its bytes are exact, its text shows a
replacement character. Joined, the bytes of a text's tokens are the text in UTF-8; but a decoder that drops the one
space before a text (Llama 2) leaves it in the first token's bytes.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from goodspeed.engine.tokenizing.text import decode
from goodspeed.wire.messages import TokenLogprobs

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class TokenText(NamedTuple):
    """A special token has its name as text and no bytes: it is no part of any text."""

    text: str
    raw: bytes


class TokenTexts:
    """Every token's text and bytes, each worked out once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bytes_of = _reader(tokenizer)
        added = tokenizer.added_tokens_decoder.items()
        self._special = frozenset(token_id for token_id, token in added if token.special)
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token_id: int) -> TokenText:
        found = self._known.get(token_id)
        if found is None:
            found = self._known[token_id] = self._look_up(token_id)
        return found

    def _look_up(self, token_id: int) -> TokenText:
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:  # a row that a model has beyond its tokenizer
            return TokenText("", b"")
        if token_id in self._special:
            return TokenText(token, b"")
        raw = self._bytes_of(token_id, token)
        return TokenText(raw.decode("utf-8", "replace"), raw)


def _reader(tokenizer: Any) -> Callable[[int, str], bytes]:
    """Returns this tokenizer's way from a token (id and name) to its bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    described = json.loads(backend.to_str())["decoder"] if backend is not None else None
    steps = list(_steps(described))
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return lambda _, token: _byte_level(token)
    if kinds & {"ByteFallback", "Metaspace"}:
        spaces = {step["pattern"]["String"]: step["content"] for step in steps if step["type"] == "Replace"}
        spaces |= {step["replacement"]: " " for step in steps if step["type"] == "Metaspace"}
        return lambda _, token: _sentence_piece(token, spaces)
    return lambda token_id, _: decode(tokenizer, [token_id]).encode()


def _steps(described: Any) -> Iterator[dict[str, Any]]:
    """The parts of a decoder, as its tokenizer.json describes it."""
    if described is None:
        return
    if described["type"] != "Sequence":
        yield described
    for inner in described.get("decoders", ()):
        yield from _steps(inner)


def _byte_level(token: str) -> bytes:
    """A name in which each character stands for a byte; added tokens with other characters are written as they are."""
    try:
        return bytes(BYTE_OF[char] for char in token)
    except KeyError:
        return token.encode()


def _sentence_piece(token: str, spaces: dict[str, str]) -> bytes:
    if match := BYTE_TOKEN.match(token):
        return bytes([int(match[1], 16)])
    for marker, written in spaces.items():
        token = token.replace(marker, written)
    return token.encode()


def _byte_characters() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes of Latin-1 are themselves, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = _byte_characters()


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
