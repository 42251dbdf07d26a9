"""The text of a stream of tokens is what decoding all of them gives, however they come, with no character cut."""

from functools import cache
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.tokenizing.text_stream import MAX_OPEN, MAX_WINDOW, TextStream
from tests.strategies import plain_text


@cache
def tokenizer() -> Any:
    return load_tokenizer("tiny-target")


def ids_of(text: str) -> list[int]:
    return list(tokenizer()(text)["input_ids"]) if text else []


words = st.one_of(st.text(max_size=6).map(ids_of), st.lists(st.integers(0, 256), max_size=6))  # 1-256: single bytes
streams = st.lists(words, max_size=12).map(lambda lists: [token for tokens in lists for token in tokens])


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
    assert len(stream._window) <= MAX_WINDOW
    assert len("".join(pieces)) == 200 - MAX_OPEN
    assert "".join([*pieces, stream.end()]) == decode(tokenizer(), [lead] * 200)
