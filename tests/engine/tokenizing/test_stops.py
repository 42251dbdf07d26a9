"""Stop strings are found as in the whole text, however it is cut, and no text is held back that need not be."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goodspeed.engine.tokenizing.text_stream import StopFinder

texts = st.text("abc", max_size=30)
stops = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def expected(text: str, stops: list[str], ignored: int) -> tuple[str, str | None]:
    """Text before the stop string that is complete first (the longest, at a tie) beyond the ignored characters."""
    found = [(at + len(stop), at, stop) for stop in stops if (at := find_beyond(text, stop, ignored)) >= 0]
    if not found:
        return text, None
    _, at, stop = min(found)
    return text[:at], stop


def find_beyond(text: str, stop: str, ignored: int) -> int:
    return text.find(stop, max(0, ignored - len(stop) + 1) if ignored else 0)


def cut(text: str, borders: list[int]) -> list[str]:
    at = [0, *sorted(min(border, len(text)) for border in borders), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(at)]


@pytest.mark.parametrize(
    ("pieces", "stops", "given", "found"),
    [
        (["one two", " three"], ["two"], ["one "], "two"),
        (["one t", "w", "o three"], ["two"], ["one ", "", ""], "two"),
        (["one t", "w", "ice"], ["two"], ["one ", "", "twice"], None),
        (["aab", "aac"], ["aabaac"], ["", ""], "aabaac"),
        (["aa", "aab"], ["aab"], ["", "aa"], "aab"),
        (["xbcd"], ["abcd", "bc"], ["x"], "bc"),
        (["abc"], ["bc", "abc"], [""], "abc"),
        (["end\n", "\n", "x"], ["\n\n"], ["end", "", ""], "\n\n"),
        (["no stops", " at all"], [], ["no stops", " at all"], None),
    ],
)
def test_by_hand(pieces: list[str], stops: list[str], given: list[str], found: str | None) -> None:
    finder = StopFinder(stops)
    assert [finder.push(piece) for piece in pieces[: len(given)]] == given
    assert finder.found == found
    assert finder.push("more") == ("more" if found is None else "")


@given(texts, stops, st.lists(st.integers(0, 30)), st.integers(0, 30))
@example("aaa", ["aa"], [], 2)
@example("abcabc", ["ca"], [4], 0)
def test_what_is_complete_too_early_is_text(text: str, stops: list[str], borders: list[int], ignored: int) -> None:
    early, late = text[:ignored], text[ignored:]
    finder = StopFinder(stops)
    given_out = "".join(finder.push(piece, counts=False) for piece in cut(early, borders))
    given_out += "".join(finder.push(piece) for piece in cut(late, borders))
    assert (given_out + finder.end(), finder.found) == expected(text, stops, len(early))


@given(texts, stops, st.lists(st.integers(0, 30)))
def test_nothing_is_held_back_but_the_beginning_of_a_stop_string(text, stops, borders):
    finder, seen, given_out = StopFinder(stops), "", ""
    for piece in cut(text, borders):
        given_out, seen = given_out + finder.push(piece), seen + piece
        if finder.found is not None:
            return
        held = max((size for stop in stops for size in range(len(stop)) if seen.endswith(stop[:size])), default=0)
        assert given_out == seen[: len(seen) - held]


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopFinder(["x", ""])


def test_a_long_stop_string_costs_no_more_than_its_length() -> None:
    stop = "a" * 100_000 + "b"
    finder = StopFinder([stop])
    assert finder.push("a" * 200_000) == "a" * 100_000
    assert finder.push("b") == ""
    assert finder.found == stop
