"""The paged pool's bookkeeping by hand; `test_prefix_cache.py` has its laws."""

import pytest

from goodspeed.engine.paged.pages import PagePool


def test_a_session_takes_a_page_only_when_its_last_one_is_full() -> None:
    pool = PagePool(num_pages=3, page_size=4)
    pool.extend("a", 4)
    assert (pool.length("a"), pool.num_free, pool.pages_needed("a", 1)) == (4, 2, 1)
    pool.extend("a", 1)
    pool.extend("a", 3)
    assert (pool.num_free, pool.table("a").tolist()) == (1, [0, 1])


def test_freed_pages_are_used_before_those_that_were_never_touched() -> None:
    pool = PagePool(num_pages=6, page_size=1)
    for key, num_tokens in (("a", 2), ("b", 2)):
        pool.extend(key, num_tokens)
    pool.free("a")
    pool.extend("b", 3)
    assert pool.table("b").tolist() == [2, 3, 0, 1, 4]


def test_a_growing_session_keeps_its_pages() -> None:
    pool = PagePool(num_pages=40, page_size=1)
    for _ in range(40):
        pool.extend("a", 1)
    assert pool.table("a").tolist() == list(range(40))


@pytest.mark.parametrize("length", [-1, 4])
def test_truncation_cannot_lengthen(length: int) -> None:
    pool = PagePool(num_pages=1)
    pool.extend("a", 3)
    with pytest.raises(ValueError, match="3 positions are cached"):
        pool.truncate("a", length)
