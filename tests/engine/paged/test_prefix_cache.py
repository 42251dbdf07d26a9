"""Shared pages: cases by hand, then the laws, against a memory that keeps what was written in each row."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from goodspeed.errors import PoolExhausted

ALICE, BOB = b"alice", b"bob"


def make_pool(num_pages: int = 8) -> PagePool:
    return PagePool(num_pages, 4, prefix_cache=True)


def write(pool: PagePool, key: str, scope: bytes, tokens: list[int]) -> None:
    """A session reads all of its text, whose full pages are published then."""
    hit = pool.find(key, scope, tokens)
    pool.adopt(key, hit)
    pool.extend(key, len(tokens) - hit.num_tokens)
    pool.publish(key, scope, tokens)


def test_a_text_that_begins_alike_has_whole_pages_of_it() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert pool.find("b", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 7, 7, 7, 7]) == Hit((0, 1), 8, 0)
    assert pool.find("c", ALICE, [1, 2, 3, 4, 5, 6, 0, 8, 9]).pages == (0,)
    assert pool.find("d", ALICE, [5, 6, 7, 8, 1, 1, 1, 1]).pages == ()  # the same page, after another text


def test_another_scope_finds_nothing_and_neither_does_none() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1] * 9)
    assert pool.find("b", BOB, [1] * 9) == Hit()
    assert pool.find("c", b"", [1] * 9) == Hit()


def test_two_pools_have_no_digest_in_common() -> None:
    """So what one process says of its digests is of no use elsewhere, nor after a restart."""
    one, other = (make_pool().digests("a", ALICE, [1] * 8) for _ in range(2))
    assert not {*one} & {*other}
    assert len({*one, *other}) == 4


def test_pages_outlive_their_session_and_count_as_free() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    pool.free("a")
    assert (pool.num_free, pool.num_unused) == (8, 2)
    hit = pool.find("b", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert hit == Hit((0, 1), 8, 2)
    pool.adopt("b", hit)
    assert (pool.length("b"), pool.num_free, pool.num_unused) == (8, 6, 0)


def test_what_was_left_first_is_evicted_first_and_of_a_text_its_end() -> None:
    pool = make_pool(6)
    write(pool, "old", ALICE, [1] * 8)
    write(pool, "new", ALICE, [2] * 8)
    pool.free("old")
    pool.free("new")
    pool.extend("c", 12)  # two pages were never used
    assert pool.find("d", ALICE, [1] * 9).num_tokens == 4
    assert pool.find("e", ALICE, [2] * 9).num_tokens == 8


def test_no_more_unused_pages_are_kept_than_may_be() -> None:
    pool = PagePool(8, 4, prefix_cache=True, max_unused=2)
    write(pool, "a", ALICE, [1] * 13)
    pool.free("a")
    assert (pool.num_free, pool.num_unused) == (8, 2)
    assert pool.find("b", ALICE, [1] * 13).num_tokens == 8


def test_a_page_that_others_have_is_given_up_whole() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    write(pool, "b", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 7])
    assert pool.truncate("b", 6) == pool.length("b") == 4
    pool.extend("b", 2)
    assert (pool.table("a").tolist(), pool.table("b").tolist()) == ([0, 1, 2], [0, 3])
    assert pool.find("c", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9]).num_tokens == 8


def test_a_page_that_is_cut_is_not_found_any_more() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert pool.truncate("a", 6) == 6
    pool.extend("a", 2)
    pool.publish("a", ALICE, [1, 2, 3, 4, 5, 6, 0, 0])
    assert pool.find("b", ALICE, [1, 2, 3, 4, 5, 6, 7, 8, 9]).num_tokens == 4
    assert pool.find("c", ALICE, [1, 2, 3, 4, 5, 6, 0, 0, 9]).num_tokens == 8


def test_what_is_withdrawn_is_not_found_and_its_sessions_keep_it() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1] * 9)
    write(pool, "b", ALICE, [1] * 9)
    pool.withdraw("a")
    assert pool.find("c", ALICE, [1] * 9) == Hit()
    assert pool.table("a").tolist()[:2] == pool.table("b").tolist()[:2]
    pool.free("a")
    pool.free("b")
    assert (pool.num_free, pool.num_unused) == (8, 0)


def test_a_shared_page_counts_for_the_first_of_its_sessions() -> None:
    pool = make_pool()
    write(pool, "a", ALICE, [1] * 9)
    write(pool, "b", ALICE, [1] * 9)
    write(pool, "c", BOB, [1] * 5)
    assert pool.owned(["a", "b", "c"]) == [3, 1, 2]
    assert pool.owned(["c", "b"]) == [2, 3]
    assert pool.owned(["b", "c"], others=["a"]) == [1, 2]
    assert pool.owned(["a", "b"], beside=[0, 5]) == [2, 1]
    assert PagePool(8, 4).owned([]) == []


def test_a_session_with_memory_adopts_none() -> None:
    pool = make_pool()
    pool.extend("a", 1)
    with pytest.raises(ValueError, match="already has pages"):
        pool.adopt("a", Hit())


def test_pages_that_are_gone_are_not_adopted() -> None:
    pool = make_pool(3)
    write(pool, "a", ALICE, [1] * 8)
    pool.free("a")
    hit = pool.find("b", ALICE, [1] * 9)
    pool.extend("c", 12)
    with pytest.raises(ValueError, match="find again"):
        pool.adopt("b", hit)
    assert "b" not in pool


KEYS = st.sampled_from(["a", "b", "c", "d"])
SCOPES = st.sampled_from([ALICE, BOB])
TOKENS = st.integers(0, 1)
PAGES, SIZE, MOST_UNUSED = 10, 3, 6


class SharingLaws(RuleBasedStateMachine):
    """The memory has the text up to it in each row, so whatever a session finds in its pages shows whose it is."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES, SIZE, prefix_cache=True, max_unused=MOST_UNUSED)
        self.texts: dict[str, tuple[bytes, list[int]]] = {}  # what each session with memory has read, and its scope
        self.rows: dict[int, tuple[bytes, tuple[int, ...]]] = {}

    @rule(key=KEYS, scope=SCOPES, tokens=st.lists(TOKENS, min_size=1, max_size=14))
    def open(self, key: str, scope: bytes, tokens: list[int]) -> None:
        if key in self.pool:
            return
        hit = self.pool.find(key, scope, tokens)
        assert hit.num_tokens < len(tokens)
        free = self.pool.num_free
        self.pool.adopt(key, hit)
        assert free - self.pool.num_free == hit.num_unused
        self.texts[key] = (scope, tokens[: hit.num_tokens])
        self.read(key, tokens[hit.num_tokens :])

    @rule(key=KEYS, tokens=st.lists(TOKENS, max_size=5), publishes=st.booleans())
    def write(self, key: str, tokens: list[int], publishes: bool) -> None:
        if key in self.pool:
            self.read(key, tokens)
            if publishes:
                self.pool.publish(key, *self.texts[key])

    def read(self, key: str, tokens: list[int]) -> None:
        table, free = self.pool.table(key).tolist(), self.pool.num_free
        needed = self.pool.pages_needed(key, len(tokens))
        if needed > free:
            with pytest.raises(PoolExhausted):
                self.pool.extend(key, len(tokens))
            return
        scope, text = self.texts[key]
        self.pool.extend(key, len(tokens))
        assert free - self.pool.num_free == needed
        assert self.pool.table(key).tolist()[: len(table)] == table
        for token in tokens:
            text.append(token)
            self.rows[int(self.pool.slots(key, [len(text) - 1])[0])] = (scope, tuple(text))

    @rule(key=KEYS, part=st.floats(0, 1))
    def truncate(self, key: str, part: float) -> None:
        length = int(self.pool.length(key) * part)
        left = self.pool.truncate(key, length)
        assert length - SIZE < left <= length
        if key in self.texts:
            del self.texts[key][1][left:]

    @rule(key=KEYS)
    def free(self, key: str) -> None:
        self.pool.free(key)
        self.texts.pop(key, None)

    @invariant()
    def everybody_has_its_own_text(self) -> None:
        for key, (scope, text) in self.texts.items():
            assert self.pool.length(key) == len(text)
            for position, slot in enumerate(self.pool.slots(key, range(len(text))).tolist()):
                assert self.rows[slot] == (scope, tuple(text[: position + 1]))

    @invariant()
    def pages_are_owned_free_or_kept(self) -> None:
        held = Counter(page for key in self.texts for page in self.pool.table(key).tolist())
        assert all(self.pool.references(page) == number for page, number in held.items())
        assert all(self.pool._prefix_cache.is_kept(page) for page, number in held.items() if number > 1)
        assert len(held) + self.pool.num_free == PAGES
        assert self.pool.num_unused <= MOST_UNUSED
        owned = self.pool.owned([*self.texts])
        assert sum(owned) == len(held)


TestSharingLaws = SharingLaws.TestCase
TestSharingLaws.settings = settings(max_examples=60, stateful_step_count=40, database=None)
