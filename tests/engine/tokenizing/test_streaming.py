"""The text of a stream of tokens is what decoding all of them gives, however they come, with no character cut."""

from functools import cache
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.tokenizing.text_stream import MAX_OPEN, MAX_PENDING, TextStream
from goodspeed.engine.torch.checkpoints import load_vocabulary
from tests.strategies import plain_text


@cache
def tokenizer() -> Any:
    return load_vocabulary("tiny-target").tokenizer


def ids_of(text: str) -> list[int]:
    return list(tokenizer()(text)["input_ids"]) if text else []


words = st.one_of(st.text(max_size=6).map(ids_of), st.lists(st.integers(0, 256), max_size=6))  # 1-256: single bytes
streams = st.lists(words, max_size=12).map(lambda lists: [token for tokens in lists for token in tokens])


@cache
def joining() -> Any:
    """A tokenizer with Llama 2's decoder, which strips the first space and joins single bytes to characters."""
    vocab = {"</s>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    vocab |= {piece: 257 + number for number, piece in enumerate(PIECES)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    strip = decoders.Strip(" ", 1, 0)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


PIECES = ("▁the", "▁", "cat", ".", "▁\ufffd")
characters = st.text(max_size=3).map(lambda text: [1 + byte for byte in text.encode()])
joined = st.lists(st.one_of(characters, st.integers(257, 261).map(lambda token: [token]), st.just([0])), max_size=12)


@settings(max_examples=500)
@given(joined)
@example([[257], [0], [257]])  # the space of a word after a hidden token
@example([[1 + byte for byte in " 日本😀😀".encode()]])
@example([[259], [261]])  # a space before a real U+FFFD, which may be an incomplete character
def test_a_decoder_that_joins_tokens_gives_the_text_of_all_of_them(parts: list[list[int]]) -> None:
    stream, ids = TextStream(joining()), [token for part in parts for token in part]
    pieces = [stream.push([token]) for token in ids]
    assert "".join([*pieces, stream.end()]) == decode(joining(), ids)


@given(joined, joined)
@example([[257], [259]], [[257], [259]])
@example([[0]], [[257]])
@example([[259], *[[0]] * 9], [[257]])  # special tokens between them
@example([[1 + byte for byte in "日本語".encode()]], [[257]])  # its last eight tokens begin within a character
def test_a_prompt_and_its_continuation_are_the_text_of_both(prompt: list[list[int]], parts: list[list[int]]) -> None:
    before, ids = ([token for part in both for token in part] for both in (prompt, parts))
    text, whole = decode(joining(), before), decode(joining(), before + ids)
    stream = TextStream(joining(), before=before)
    pieces = [stream.push([token]) for token in ids]
    if not text.endswith("\ufffd") and whole.startswith(text) and "\ufffd" not in whole:
        assert text + "".join([*pieces, stream.end()]) == whole


def test_a_prompt_that_ends_within_a_character_is_no_context() -> None:
    first, *rest = [1 + byte for byte in "日".encode()]
    stream = TextStream(joining(), before=[259, first])
    assert "".join(map(stream.push, ([token] for token in [*rest, 257, 259]))) + stream.end() == "\ufffd\ufffd thecat"


@given(streams, st.integers(1, 5))
def test_any_tokens_give_the_text_of_all_of_them(ids: list[int], at_once: int) -> None:
    stream = TextStream(tokenizer())
    pieces = [stream.push(ids[start : start + at_once]) for start in range(0, len(ids), at_once)]
    assert "".join([*pieces, stream.end()]) == decode(tokenizer(), ids)


@given(plain_text(tokenizer, 30))
@example("日本語 😀😀 naïve")
def test_a_text_is_never_cut_within_a_character_nor_held_back(text: str) -> None:
    stream, ids, given_out = TextStream(tokenizer()), ids_of(text), ""
    for number, token_id in enumerate(ids, 1):
        given_out += stream.push([token_id])
        assert text.startswith(given_out)
        whole = decode(tokenizer(), ids[:number])
        assert len(given_out) >= len(whole.rstrip("\ufffd"))
    assert given_out + stream.end() == text


def test_bytes_that_never_become_a_character_are_not_decoded_again_and_again() -> None:
    (lead, *_), stream = ids_of("日"), TextStream(tokenizer())
    pieces = [stream.push([lead]) for _ in range(200)]
    assert len(stream._context) + len(stream._pending) <= MAX_PENDING
    assert len("".join(pieces)) == 200 - MAX_OPEN
    assert "".join([*pieces, stream.end()]) == decode(tokenizer(), [lead] * 200)
