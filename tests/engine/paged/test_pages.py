"""The paged pool's bookkeeping: a case by hand, then a model-based test of its laws."""

from collections.abc import Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import PoolExhausted


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


@pytest.mark.parametrize("length", [-1, 4])
def test_truncation_cannot_lengthen(length: int) -> None:
    pool = PagePool(num_pages=1)
    pool.extend("a", 3)
    with pytest.raises(ValueError, match="3 positions are cached"):
        pool.truncate("a", length)


KEYS = st.sampled_from(["a", "b", 3, ("c", 1), b"d"])


class PoolLaws(RuleBasedStateMachine):
    """Beside the pool, only the lengths are kept; everything else must follow from them."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(num_pages=12, page_size=3)
        self.lengths: dict[Hashable, int] = {}

    @rule(key=KEYS, num_tokens=st.integers(0, 20))
    def extend(self, key: Hashable, num_tokens: int) -> None:
        needed, before = self.pool.pages_needed(key, num_tokens), self.pool.num_free
        if needed > before:
            with pytest.raises(PoolExhausted):
                self.pool.extend(key, num_tokens)
            return
        kept = self.pool.table(key).tolist() if key in self.pool else []
        self.pool.extend(key, num_tokens)
        self.lengths[key] = self.lengths.get(key, 0) + num_tokens
        assert before - self.pool.num_free == needed
        assert self.pool.table(key).tolist()[: len(kept)] == kept

    @rule(key=KEYS, part=st.floats(0, 1))
    def truncate(self, key: Hashable, part: float) -> None:
        length = int(self.lengths.get(key, 0) * part)
        kept = self.pool.table(key).tolist() if key in self.pool else []
        self.pool.truncate(key, length)
        if key in self.lengths:
            self.lengths[key] = length
            assert self.pool.table(key).tolist() == kept[: -(-length // 3)]

    @rule(key=KEYS)
    def free(self, key: Hashable) -> None:
        self.pool.free(key)
        self.lengths.pop(key, None)

    @invariant()
    def no_page_is_owned_twice_or_lost(self) -> None:
        owned = [page for key in self.lengths for page in self.pool.table(key).tolist()]
        assert len(set(owned)) == len(owned)
        assert all(0 <= page < 12 for page in owned)
        assert self.pool.num_free == 12 - len(owned)

    @invariant()
    def lengths_are_kept(self) -> None:
        for key, length in self.lengths.items():
            assert key in self.pool
            assert self.pool.length(key) == length
            assert len(self.pool.table(key)) == -(-length // 3)


TestPoolLaws = PoolLaws.TestCase
TestPoolLaws.settings = settings(max_examples=60, stateful_step_count=40, database=None)
