"""Free pages: which are handed out by hand, then that each is handed out once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.paged import free_pages
from goodspeed.engine.paged.free_pages import FreePages


def test_the_last_freed_is_used_first_and_untouched_ones_last() -> None:
    free = FreePages(6)
    assert free.take(4) == [0, 1, 2, 3]
    free.give([3, 1])
    assert (free.take(3), len(free), free.take(1)) == ([1, 3, 4], 1, [5])


def test_pages_follow_the_one_before_while_those_are_free() -> None:
    free = FreePages(8)
    free.take(5)
    free.give([4, 3, 1])
    assert free.take(3, after=2) == [3, 4, 5]
    assert free.take(2, after=0) == [1, 6]


def test_a_run_is_looked_for_among_freed_pages_and_then_among_untouched_ones() -> None:
    free = FreePages(8)
    free.take(6)
    free.give([5, 0, 3, 2])
    assert free.take(2, in_a_run=True) == [2, 3]
    assert free.take(2, in_a_run=True) == [6, 7]
    assert sorted(free.take(2, in_a_run=True)) == [0, 5]  # there is none, and they are handed out all the same


def test_scattered_pages_are_used_where_there_are_many() -> None:
    free = FreePages(100)
    free.take(40)
    free.give(range(0, 40, 5))
    assert free.take(3, in_a_run=True) == [40, 41, 42]
    assert free.take(2, in_a_run=True) == [35, 30]


def test_a_run_is_looked_for_among_few_however_many_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    num_sorted = []
    monkeypatch.setattr(free_pages, "_run", lambda pages, number: num_sorted.append(len(pages)))
    free = FreePages(10_000)
    free.take(10_000)
    free.give(range(0, 10_000, 2))
    assert free.take(3, in_a_run=True) == [9998, 9996, 9994]
    assert num_sorted == [3 * free_pages.NEWEST]


@pytest.mark.thorough
@given(st.data(), st.booleans())
def test_every_page_is_handed_out_once(data: st.DataObject, in_a_run: bool) -> None:
    free, taken = FreePages(20), set[int]()
    for _ in range(data.draw(st.integers(1, 20))):
        if data.draw(st.booleans()) and taken:
            given_back = data.draw(st.lists(st.sampled_from(sorted(taken)), unique=True))
            free.give(given_back)
            taken -= set(given_back)
        number = data.draw(st.integers(0, len(free)))
        after = data.draw(st.none() | st.integers(0, 19))
        pages = free.take(number, after, in_a_run=in_a_run)
        assert len(pages) == number == len(set(pages))
        assert not taken & set(pages)
        assert set(pages) <= set(range(20))
        taken |= set(pages)
        assert len(free) == 20 - len(taken)
    assert taken.union(free.take(len(free))) == set(range(20))
