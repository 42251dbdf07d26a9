"""A round is packed: cases by hand, then the law that no limit is ever exceeded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from tests.fakes import session_id
from tests.verify_node.answers import fed
from tests.verify_node.scheduler.drafting import pack, session_of
from verify_node.scheduler.pack import RoundPages
from verify_node.scheduler.preempt import Shortage
from verify_node.session.session import Session


def ids(*numbers):
    return tuple(session_id(number) for number in numbers)


def verified(planned):
    """The sessions for which the target draws."""
    return tuple(entry.session_id for entry in planned.entries if entry.samples)


def test_an_entry_feeds_what_is_not_cached_and_the_draft():
    pool = PagePool(8, 4)
    [entry] = pack([session_of(1, prompt=5, cached=3, draft=2, pool=pool)], pool).entries
    assert (entry.start, entry.tokens, entry.num_drafted, entry.base_len) == (3, (4, 5, 1, 1), 2, 5)
    assert (entry.samples, entry.source, entry.opened.epoch) == (True, "model", 1)


def test_who_has_waited_longest_goes_first_and_a_shorter_draft_fills_what_a_longer_one_leaves():
    pool = PagePool(20, 4)
    sessions = [session_of(n, cached=2, draft=3, ready_since=at, pool=pool) for n, at in [(1, 3.0), (2, 1.0), (3, 2.0)]]
    planned = pack(sessions, pool, budget=6)
    assert (list(fed(planned)), planned.deferred, planned.num_drafted) == ([2, 3], ids(1), 6)
    sessions = [session_of(n, cached=2, draft=length, pool=pool) for n, length in [(1, 5), (2, 4), (3, 3)]]
    planned = pack(sessions, pool, budget=8)
    assert (verified(planned), planned.deferred) == (ids(1, 3), ids(2))


def test_a_long_prompt_is_fed_in_chunks_and_leaves_half_of_the_round_to_others():
    pool = PagePool(50, 4)
    long = session_of(1, prompt=100)
    others = [session_of(n, cached=2, draft=3, ready_since=1.0, pool=pool) for n in (2, 3, 4, 5)]
    planned = pack([long, *others], pool, budget=12)
    assert planned.deferred == ()
    assert [len(entry.tokens) for entry in planned.entries] == [16, 4, 4, 4, 4]
    assert planned.prefilled == ids(1)
    assert verified(planned) == ids(2, 3, 4, 5)
    assert (planned.entries[0].samples, planned.entries[0].base_len) == (False, 16)


def test_clients_take_turns_in_having_prompts_prefilled():
    pool = PagePool(50, 4)
    many = [session_of(number, prompt=20) for number in (1, 2, 3)]
    other = session_of(4, prompt=20, ready_since=1.0)
    other.client.name = "b"
    planned = pack([*many, other], pool, max_round_tokens=60)  # of which 30 for prompts
    assert planned.prefilled == ids(1, 4)
    decoding = session_of(5, cached=2, ready_since=0.5, pool=pool)
    planned = pack([*many, other, decoding], pool, max_round_tokens=60)
    assert list(fed(planned)) == [4, 1, 5], "now the other client is first"


def test_a_preempted_draft_waits_until_its_text_is_fed_again():
    pool = PagePool(50, 4)
    session = session_of(1, prompt=40, draft=3)
    for num_cached, expected in ((0, (0, None, False)), (39, (3, "model", True))):
        if num_cached:  # else it is not in the pool, as after a preemption
            pool.extend(session.session_id, num_cached)
        [entry] = pack([session], pool).entries
        assert (entry.num_drafted, entry.source, entry.samples) == expected


def test_the_youngest_gives_way_to_an_older_one():
    pool = PagePool(4, 4)
    sessions = [session_of(n, prompt=5, cached=4, draft=3, ready_since=n, pool=pool) for n in (1, 2)]
    idle = session_of(3, prompt=8, cached=7, waits=True, ready_since=3.0, pool=pool)  # two pages
    planned = pack([*sessions, idle], pool, ready=sessions)
    assert planned.preempted == ids(3)
    assert verified(planned) == ids(1, 2)
    assert session_id(3) not in pool


def test_a_session_is_admitted_when_all_of_it_finds_room():
    pool = PagePool(5, 4)
    assert pack([session_of(1, prompt=21)], pool).deferred == ids(1)
    planned = pack([session_of(1, prompt=20)], pool)
    assert planned.admitted == planned.prefilled == ids(1)
    assert len(planned.entries[0].tokens) == 16


TEXT: dict[str, Any] = {"prompt": st.integers(1, 40), "share_cached": st.floats(0, 1)}
DRAFTED = {"draft": st.none() | st.integers(0, 12), "ready": st.booleans(), "ready_since": st.integers(0, 3)}
a_session = st.fixed_dictionaries(TEXT | DRAFTED)


@given(st.lists(a_session, max_size=8), st.integers(12, 20), st.integers(1, 40), st.integers(14, 40), st.booleans())
def test_no_limit_is_ever_exceeded_and_somebody_always_moves(descriptions, budget, more_tokens, num_pages, careless):
    """careless: whoever decides about memory lets everybody have what it wants."""
    pool = PagePool(num_pages, 4)
    sessions, ready = [], []
    for number, description in enumerate(descriptions, 1):
        cached = int(description["share_cached"] * (description["prompt"] - 1))
        if -(-cached // 4) > pool.num_free:
            cached = 0
        draft, since = description["draft"] if description["ready"] else None, float(description["ready_since"])
        known: Any = {"prompt": description["prompt"], "cached": cached or None, "draft": draft, "pool": pool}
        sessions.append(session_of(number, ready_since=since, **known))
        ready += sessions[-1:] if description["ready"] else []
    holders = [session for session in sessions if session.session_id in pool]
    resolve = (lambda *contending: Shortage()) if careless else None
    planned = pack(sessions, pool, budget, budget + more_tokens, ready=ready, resolve=resolve)
    by_id = {session.session_id: session for session in sessions}
    assert planned.num_drafted <= budget
    assert planned.num_tokens <= budget + more_tokens
    taking_part = [entry.session_id for entry in planned.entries]
    assert sorted([*taking_part, *planned.deferred]) == sorted(session.session_id for session in ready)
    assert not set(taking_part) & set(planned.preempted)
    assert set(taking_part) == {*planned.prefilled, *verified(planned)}
    for key in planned.preempted:
        assert key not in pool
    for entry in planned.entries:
        session = by_id[entry.session_id]
        assert entry.start == pool.length(entry.session_id)
        drafted = session.drafts.newest.tokens if session.drafts.newest and entry.samples else ()
        assert entry.tokens == (*session.tokens[entry.start : entry.base_len], *drafted)
        assert entry.samples == (entry.base_len == len(session.tokens))
        pool.extend(entry.session_id, len(entry.tokens))  # never PoolExhausted
    first = min(holders, key=lambda session: session.admitted, default=None)  # preempted last
    if not careless and (first in ready or (ready and not holders)):
        assert planned.entries


# -- pages that sessions share -----------------------------------------------------------------------------------------


SCOPE = b"alice"


def make_pool(num_pages: int, **options: Any) -> PagePool:
    return PagePool(num_pages, 4, prefix_cache=True, **options)


def make(number: int, tokens: list[int], pool: PagePool, *, reads: int = 0) -> Session:
    """Session `number` with this text, of which it has read so much, as far as that was not found."""
    session: Session = session_of(number, prompt=len(tokens))
    session.tokens[:] = tokens
    session.prefix_scope = SCOPE
    if reads:
        hit = pool.find(session.session_id, SCOPE, tokens)
        pool.adopt(session.session_id, hit)
        pool.extend(session.session_id, reads - hit.num_tokens)
        pool.publish(session.session_id, SCOPE, tokens)
    return session


def test_unused_pages_that_are_found_are_free_ones_that_it_takes() -> None:
    pool = make_pool(4)
    make(9, [1] * 9, pool, reads=9)
    pool.free(session_id(9))
    session = make(1, [1] * 9, pool)
    pages = RoundPages(pool, {})
    assert pages.find(session) == Hit((0, 1), 8, 2)
    assert pages.needed(session, pages.find(session)) == 3
    assert pages.reserve(session, len(session.tokens), pages.find(session))
    assert (pages.reserved, pool.num_free, pool.num_unused) == (1, 2, 0)


@pytest.mark.parametrize(("num_tokens", "preempted"), [(9, {3}), (13, {2, 3})])
def test_only_pages_that_nobody_has_who_stays_make_room(num_tokens: int, preempted: set[int]) -> None:
    """The two younger ones share two of their three pages, and one page is free; the older one has one of its pages."""
    pool = make_pool(6)
    young = [make(number, [1] * 9, pool, reads=9) for number in (2, 3)]
    old = make(1, [2] * num_tokens, pool, reads=4)
    assert pool.num_free == 1
    assert {*pack([old, *young], pool, ready=[old]).preempted} == {session_id(number) for number in preempted}


def test_what_is_found_is_not_evicted_by_those_who_are_preempted_for_it() -> None:
    """No more than two pages are kept without a session: those of the victim push older ones out."""
    pool = make_pool(6, max_unused=2)
    make(9, [1] * 9, pool, reads=9)
    pool.free(session_id(9))
    victim = make(2, [2] * 13, pool, reads=13)
    assert (pool.num_free, pool.num_unused) == (2, 2)
    old = make(1, [1] * 17, pool)
    shortage = Shortage(preempt=(victim.session_id,))
    planned = pack([old, victim], pool, 8, 64, ready=[old], resolve=lambda *contending: shortage)
    assert planned.preempted == (session_id(2),)
    pool.extend(old.session_id, len(old.tokens) - planned.entries[0].start)
    assert len(set(pool.table(old.session_id).tolist())) == 5
    assert pool.num_free == 1
