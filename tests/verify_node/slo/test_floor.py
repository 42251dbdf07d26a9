"""The floor of best effort: what clients that wait are due, are short of and get, by hand and then in packed rounds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.engine.paged.pages import PagePool
from goodspeed.slo.capacity import FLOOR
from tests.fakes import session_id
from tests.verify_node.scheduler.drafting import pack, session_of
from tests.verify_node.slo.deadlines import HandRounds, deadline, running
from tests.verify_node.slo.deadlines import promised as held
from verify_node.scheduler.round import Round
from verify_node.session.session import Session
from verify_node.slo.allotting import Allotment, allot
from verify_node.slo.promises import MOST_SHORT, Floor

POOL = PagePool(400, 4)


def session(number: int, client: str, weight: float = 1.0, prompt: int = 1) -> Session:
    made: Session = session_of(number, prompt=prompt, pool=POOL)
    made.client.name, made.client.weight = client, weight
    return made


def packed(ready: list[Session], floor: dict[bytes, int], promised: list[bytes], most: int) -> Round:
    allotment = Allotment(most, {}, tuple(promised), frozenset(), floor=floor)
    planned: Round = pack(ready, PagePool(400, 4), 8, 2 * most, drafted={}, allotment=allotment)
    return planned


def taken(planned: Round) -> dict[bytes, int]:
    return {entry.session_id: len(entry.tokens) for entry in planned.entries}


def test_a_clients_promised_tokens_are_its_own() -> None:
    loud, other = [session(number, "loud") for number in range(8)], session(9, "loud")
    ready, promised = [*loud, other, session(10, "quiet")], [one.session_id for one in loud]
    floor = Floor()
    for _ in range(9):
        floor.began(taken(packed(ready, {}, promised, 8)), ready, promised)
    assert floor.owed([other], POOL, 8) == {}


def test_many_who_are_short_of_a_token_at_once_take_no_more_than_is_due_in_a_round() -> None:
    quiet = [session(number, f"quiet {number}") for number in range(20)]
    loud = session(99, "loud", weight=20.0, prompt=41)
    ready, promised = [*quiet, loud], [loud.session_id]
    floor = Floor()
    for _ in range(10):
        floor.began(taken(packed(ready, {}, promised, 40)), ready, promised)
    assert sum(floor.owed(quiet, POOL, 40).values()) == 5, "an eighth of 40 tokens"


def test_what_a_long_round_did_not_give_makes_no_short_one_long() -> None:
    """A round of 400 tokens left out a prompt; the next one carries 16, of which two are due to it, and the next 80."""
    quiet, loud = session(1, "quiet", prompt=300), session(2, "loud", prompt=401)
    floor = Floor()
    floor.began(taken(packed([loud], {}, [loud.session_id], 400)), [quiet, loud], [loud.session_id])
    assert [sum(floor.owed([quiet], POOL, room).values()) for room in (16, 80)] == [2, 10]


def test_who_can_take_nothing_saves_up_little_and_nothing_when_its_client_leaves() -> None:
    quiet, loud = session(1, "quiet", prompt=100), session(2, "loud", prompt=41)
    ready, promised = [quiet, loud], [loud.session_id]
    floor = Floor()
    for _ in range(50):
        floor.began(taken(packed([loud], {}, promised, 40)), ready, promised)
    assert 0 < sum(floor.owed([quiet], POOL, 40).values()) <= MOST_SHORT + 5
    floor.keep({"loud"})
    assert floor.owed([quiet], POOL, 8) == {}


def test_drafts_and_prompts_leave_the_floor_free() -> None:
    """Sessions of best effort with a floor have their tokens even behind a draft and a prompt that would fill it."""
    first, second = session(1, "a", prompt=30), session(2, "b")
    owed = {first.session_id: 2, second.session_id: 1}
    planned = packed([first, second], owed, [], 10)
    assert [len(entry.tokens) for entry in planned.entries] == [9, 1]


def test_a_round_has_the_floor_even_if_promises_need_all_of_it() -> None:
    own = [running(session_id(number)) for number in range(6)]
    rounds: Any = HandRounds(lambda seconds: 10 * seconds)
    rounds.beside = lambda seconds, number, others: 0
    promises = held(*own, deadline(session_id(7), 9.0, 20, None))

    def allotted(**floor: int) -> tuple[int | None, dict[bytes, int]]:
        kept = {session_id(9): number for number in floor.values()}
        found = allot(promises, 0.0, rounds, floor=lambda room: kept)
        return found.round_tokens, found.prefill

    assert allotted() == (10, {session_id(7): 4})
    assert allotted(floor=3) == (10, {session_id(7): 1})
    assert allotted(floor=5) == (11, {session_id(7): 0})


weights = st.floats(0.1, 10.0)


@given(st.lists(weights, min_size=1, max_size=6), weights, st.integers(8, 40))
def test_each_client_gets_its_floor_over_any_stretch(quiet: list[float], loud: float, most: int) -> None:
    """Rounds could be filled by promises alone; who waits gets what is due, up to a token or two."""
    waiting = [session(number, f"quiet {number}", weight) for number, weight in enumerate(quiet)]
    others = [session(100 + number, "loud", loud) for number in range(most)]
    ready, promised = [*waiting, *others], [other.session_id for other in others]
    floor, due = Floor(), 0.0
    got = dict.fromkeys((one.session_id for one in waiting), 0)
    for number in range(120):
        for one in waiting:
            one.ready_since = float(number)
        planned = packed(ready, floor.owed(waiting, POOL, most), promised, most)
        floor.began(taken(planned), ready, promised)
        due += FLOOR * planned.num_tokens / (sum(quiet) + loud)
        for entry in planned.entries:
            if entry.session_id in got:
                got[entry.session_id] += len(entry.tokens)
    for one, weight in zip(waiting, quiet, strict=True):
        assert got[one.session_id] >= min(120, int(due * weight) - most * FLOOR) - MOST_SHORT
    assert sum(got.values()) <= 120 * (FLOOR * most + 1), "promises keep three quarters"


@pytest.mark.parametrize("number", [0, 1])
def test_a_draft_that_does_not_fit_beside_the_floor_is_left_out(number: int) -> None:
    made = session_of(1, prompt=1, draft=4, pool=POOL)
    floor = {made.session_id: 1} if number else {}
    allotment = Allotment(3, {}, (), frozenset(), floor=floor)
    planned = pack([made], PagePool(8, 4), allotment=allotment)
    assert len(planned.entries) == number, "without a floor it waits for the next round"
