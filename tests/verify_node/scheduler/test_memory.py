"""Who gives way for what in a round whose sessions share pages."""

from typing import Any

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from tests.fakes import session_id
from tests.verify_node.scheduler.sessions import make_session
from verify_node.scheduler.memory import RoundMemory
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


def memory_of(pool: PagePool, *resident: Session) -> RoundMemory:
    return RoundMemory(pool, {}, resident, (), ())


def reserve(memory: RoundMemory, session: Session) -> bool:
    return memory.reserve(session, len(session.tokens), memory.find(session))


def test_pages_that_others_have_are_not_taken_from_the_free_ones() -> None:
    pool = make_pool(5)
    first = make(1, [1] * 13, pool, reads=13)
    second = make(2, [1] * 13, pool)
    memory = memory_of(pool, first)
    assert memory.needed(second, memory.find(second)) == 1
    assert reserve(memory, second)
    assert (memory.admitted, memory.reserved, pool.num_free) == ([session_id(2)], 1, 1)
    assert pool.length(session_id(2)) == 12


def test_unused_pages_that_are_found_are_free_ones_that_it_takes() -> None:
    pool = make_pool(4)
    make(9, [1] * 9, pool, reads=9)
    pool.free(session_id(9))
    session = make(1, [1] * 9, pool)
    memory = memory_of(pool)
    assert memory.find(session) == Hit((0, 1), 8, 2)
    assert memory.needed(session, memory.find(session)) == 3
    assert reserve(memory, session)
    assert (memory.reserved, pool.num_free, pool.num_unused) == (1, 2, 0)


def test_only_pages_that_nobody_has_who_stays_make_room() -> None:
    """The two younger ones share two of their three pages; the older one needs three, and all but one are taken."""
    pool = make_pool(6)
    young = [make(number, [1] * 9, pool, reads=9) for number in (2, 3)]
    assert pool.num_free == 2
    old = make(1, [2] * 9, pool)
    memory = memory_of(pool, *young)
    assert reserve(memory, old)
    assert memory.preempted == [session_id(3)]
    older = make(0, [3] * 13, pool)
    assert reserve(memory, older) is False
    memory = memory_of(pool, young[0])
    assert reserve(memory, make(0, [3] * 21, pool))
    assert memory.preempted == [session_id(2)]


def test_what_is_found_is_not_evicted_by_those_who_give_way_for_it() -> None:
    """No more than two pages are kept without a session: those of the victim push older ones out."""
    pool = make_pool(6, max_unused=2)
    make(9, [1] * 9, pool, reads=9)
    pool.free(session_id(9))
    victim = make(2, [2] * 13, pool, reads=13)
    assert (pool.num_free, pool.num_unused) == (2, 2)
    old = make(1, [1] * 17, pool)
    memory = memory_of(pool, victim)
    assert reserve(memory, old)
    assert memory.preempted == [session_id(2)]
    pool.extend(old.session_id, 9)
    pages = pool.table(old.session_id).tolist()
    assert len(set(pages)) == 5
    assert pool.num_free == 1
