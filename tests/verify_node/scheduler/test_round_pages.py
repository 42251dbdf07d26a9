"""Pages in a round whose sessions share some."""

from typing import Any

import pytest

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from tests.fakes import session_id
from tests.verify_node.scheduler.sessions import make_session, pack
from verify_node.scheduler.pack import RoundPages
from verify_node.scheduler.preempt import Shortage
from verify_node.session.session import Session

SCOPE = b"alice"


def make_pool(num_pages: int, **options: Any) -> PagePool:
    return PagePool(num_pages, 4, prefix_cache=True, **options)


def make(number: int, tokens: list[int], pool: PagePool, *, reads: int = 0) -> Session:
    """Session `number` with this text, of which it has read so much, as far as that was not found."""
    session: Session = make_session(number, prompt=len(tokens))
    session.tokens[:] = tokens
    session.prefix_scope = SCOPE
    if reads:
        hit = pool.find(session.session_id, SCOPE, tokens)
        pool.adopt(session.session_id, hit)
        pool.extend(session.session_id, reads - hit.num_tokens)
        pool.publish(session.session_id, SCOPE, tokens)
    return session


def reserve(pages: RoundPages, session: Session) -> bool:
    return pages.reserve(session, len(session.tokens), pages.find(session))


def test_pages_that_others_have_are_not_taken_from_the_free_ones() -> None:
    pool = make_pool(5)
    make(1, [1] * 13, pool, reads=13)
    second = make(2, [1] * 13, pool)
    pages = RoundPages(pool, {})
    assert pages.needed(second, pages.find(second)) == 1
    assert reserve(pages, second)
    assert (pages.admitted, pages.reserved, pool.num_free) == ([session_id(2)], 1, 1)
    assert pool.length(session_id(2)) == 12


def test_unused_pages_that_are_found_are_free_ones_that_it_takes() -> None:
    pool = make_pool(4)
    make(9, [1] * 9, pool, reads=9)
    pool.free(session_id(9))
    session = make(1, [1] * 9, pool)
    pages = RoundPages(pool, {})
    assert pages.find(session) == Hit((0, 1), 8, 2)
    assert pages.needed(session, pages.find(session)) == 3
    assert reserve(pages, session)
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
