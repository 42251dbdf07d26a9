"""Tokens of a text or a prompt, with each token's text, bytes and log-probabilities.

A token of byte-level BPE, or one like `<0x0A>`, may be part of a character: its bytes are exact, its text shows a
replacement character. Joined, the bytes of a text's tokens are the text in UTF-8. One exception: a decoder that strips
the leading space (Llama 2) of a new turn's text does not strip it from the first token's bytes.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from goodspeed.engine.tokenizing.text import decode, special_ids
from goodspeed.wire.messages import TokenLogprobs

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class TokenText(NamedTuple):
    """Text and bytes of a token. A special token's text is its name; it has no bytes, since it is part of no text."""

    text: str
    raw: bytes


class TokenTexts:
    """Caches each token's text and bytes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._bytes_of = _reader(tokenizer)
        self.special = special_ids(tokenizer)
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token_id: int) -> TokenText:
        found = self._known.get(token_id)
        if found is None:
            found = self._known[token_id] = self._look_up(token_id)
        return found

    def _look_up(self, token_id: int) -> TokenText:
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:  # an embedding row without token
            return TokenText("", b"")
        if token_id in self.special:
            return TokenText(token, b"")
        raw = self._bytes_of(token_id, token)
        return TokenText(raw.decode("utf-8", "replace"), raw)


def _reader(tokenizer: Any) -> Callable[[int, str], bytes]:
    """Returns the function that maps a token's id and name to its bytes, by the tokenizer's decoder."""
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
    """Yields the steps of a decoder described by a tokenizer.json."""
    if described is None:
        return
    if described["type"] != "Sequence":
        yield described
    for inner in described.get("decoders", ()):
        yield from _steps(inner)


def _byte_level(token: str) -> bytes:
    """Maps each character of a name to a byte; added tokens with other characters are encoded as UTF-8."""
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
    """Returns GPT-2's alphabet: printable Latin-1 bytes map to themselves, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = _byte_characters()


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token of a text, or an alternative to it; its text and bytes may be part of a character (see the module).

    Garbage collection skips these objects: an answer has very many, and a collection blocks the event loop.
    """

    id: int
    text: str
    raw: bytes
    logprob: float | None = None  # None: not requested, or a prompt's first token
    top: "tuple[Token, ...]" = ()  # alternatives


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt's tokens, built only by `read`: a long prompt takes a second, too long for an event loop."""

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]  # of all tokens but the first
    texts: TokenTexts

    def read(self) -> list[Token]:
        first, *others = self.ids
        told = zip(others, self.logprobs, strict=True)
        return [token_of(self.texts, first), *(token_of(self.texts, token, one) for token, one in told)]


def token_of(texts: TokenTexts, token_id: int, told: TokenLogprobs | None = None) -> Token:
    """Builds a token with its text, and with log-probabilities if given."""
    text, raw = texts[token_id]
    if told is None:
        return Token(token_id, text, raw)
    ranked = zip(told.top_ids, told.top_logprobs, strict=True)
    top = tuple(Token(other, *texts[other], logprob) for other, logprob in ranked)
    return Token(token_id, text, raw, told.logprob, top)
