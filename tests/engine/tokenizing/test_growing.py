"""A growing text ends at its first stop string, and has no leading whitespace where none is wanted."""

from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.tokenizing.text_stream import GrowingText, LeadingWhitespace


class Letters:
    """A tokenizer whose ids are code points."""

    added_tokens_decoder: ClassVar[dict[int, object]] = {}

    def decode(self, token_ids, **_):
        return "".join(map(chr, token_ids))


def grow(text, stops=(), *, is_trimmed=False, counts=True):
    growing = GrowingText(Letters(), stops, is_trimmed=is_trimmed)
    pieces = []
    for char in text:
        pieces.append(growing.push(ord(char), counts=counts))
        if growing.stop is not None:
            return "".join(pieces), growing.stop
    pieces.append(growing.end(counts=counts))
    return "".join(pieces), growing.stop


def test_a_stop_string_that_does_not_count_is_text():
    assert grow("abcd", ("c",), counts=False) == ("abcd", None)


def test_leading_whitespace_is_left_out_only_where_that_is_wanted():
    assert grow(" \n a b") == (" \n a b", None)
    assert grow(" \n a b", is_trimmed=True) == ("a b", None)


def test_a_stop_string_is_looked_for_in_the_text_as_the_model_wrote_it():
    assert grow("\n\nab", ("\n\n",), is_trimmed=True) == ("", "\n\n")


def test_text_is_held_back_while_it_may_begin_a_stop_string():
    growing = GrowingText(Letters(), ("ab",), is_trimmed=True)
    assert [growing.push(ord(char)) for char in " ac"] == ["", "", "ac"]


PIECES = st.lists(st.text(" \n\tab", max_size=4), max_size=8)


@given(PIECES)
def test_leading_whitespace_is_that_of_the_whole_text_and_stays_unasked(pieces: list[str]) -> None:
    leading, plain = LeadingWhitespace(is_left_out=True), LeadingWhitespace(is_left_out=False)
    assert "".join(map(leading.push, pieces)) == "".join(pieces).lstrip()
    assert list(map(plain.push, pieces)) == pieces
