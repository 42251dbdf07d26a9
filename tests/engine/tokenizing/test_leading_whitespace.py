"""The whitespace before the first other character is left out, wherever the text is cut, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace

PIECES = st.lists(st.text(" \n\tab", max_size=4), max_size=8)


@given(PIECES)
def test_as_of_the_whole_text(pieces: list[str]) -> None:
    leading = LeadingWhitespace(is_left_out=True)
    assert "".join(map(leading.push, pieces)) == "".join(pieces).lstrip()


@given(PIECES)
def test_nothing_is_left_out_unasked(pieces: list[str]) -> None:
    leading = LeadingWhitespace(is_left_out=False)
    assert list(map(leading.push, pieces)) == pieces
