"""Sessions give up memory or wait for it: small cases by hand, then laws for all orders."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.simulation.rival_orders import create
from verify_node.scheduler.attained_service import ENTERED_OVERDUE, IN_FIRST_S, SERVED, Claim
from verify_node.scheduler.orders.base import AGING_S, Job
from verify_node.scheduler.preempt import Contention

ORDERS = ("las", "sjf", "laps")


def waiter(name: str, **known: Any) -> Job:
    ours: dict[str, Any] = {"job_id": name, "arrived_at": 0.0, "waits_since": 0.0, "remaining_tokens": 10.0}
    return Job(**(ours | known))


def holder(name: str, **known: Any) -> Job:
    return waiter(name, **({"waits_since": None, "attained_s": 1.0, "turn_s": 1.0} | known))


def seated(order: str, jobs: list[Job], num_free, owned, needs, claims=None, *, num_promised=0, stuck=(), now=1.0):
    """Returns who leaves, and who waits, by name."""
    claims = dict.fromkeys(owned, (SERVED, 0.0)) | dict(claims or {})
    pages: dict[str, Any] = {"num_free": num_free, "owned": owned, "needs": needs, "num_promised": num_promised}
    found = Contention(create(order), jobs, now, claims=claims, stuck=stuck, **pages).resolve()
    return list(found.preempt), sorted(map(str, found.wait))


def test_a_smaller_one_behind_one_that_finds_no_room_is_let_in_and_one_left_out_of_the_round_is_given_nothing() -> None:
    waiting = [waiter("big"), waiter("small", arrived_at=1.0)]
    assert seated("las", waiting, 2, {}, {"big": 3, "small": 2}) == ([], ["big"])
    jobs = [waiter("first"), waiter("second", arrived_at=1.0)]
    assert seated("las", jobs, 2, {}, {"second": 2}) == ([], [])


@pytest.mark.parametrize("order", ["fcfs", *ORDERS])
def test_one_that_is_stuck_yields_to_all_others_and_keeps_what_would_not_suffice(order: str) -> None:
    jobs = [holder("stuck", remaining_tokens=1.0), holder("goes on"), waiter("w"), waiter("big", arrived_at=1.0)]
    owned, needs = {"stuck": 3, "goes on": 3}, {"w": 3, "big": 4}
    assert seated(order, jobs, 0, owned, needs, stuck={"stuck"}) == (["stuck"], ["big"])
    assert seated(order, [jobs[0], jobs[3]], 0, {"stuck": 3}, {"big": 4}, stuck={"stuck"}) == ([], ["big"])


def test_one_that_needs_a_page_takes_it_from_the_last() -> None:
    held = [holder("a", remaining_tokens=5.0), holder("b", remaining_tokens=7.0), holder("c", remaining_tokens=9.0)]
    owned = {"a": 2, "b": 2, "c": 2}
    assert seated("sjf", held, 0, owned, {"a": 1}) == (["c"], [])
    assert seated("sjf", held, 0, owned, {"a": 3}) == (["c", "b"], [])
    assert seated("sjf", held, 0, owned, {"a": 1, "b": 1, "c": 1}) == (["c"], []), "its two pages are for both"
    assert seated("sjf", held, 0, owned, {"c": 1}) == ([], ["c"]), "the last takes nothing from anybody"
    assert seated("sjf", held, 0, owned, {"b": 3}) == ([], ["b"]), "and nobody leaves in vain"


def test_promised_sessions_take_from_the_last_whatever_claim_it_has() -> None:
    held = [holder("a", remaining_tokens=5.0), holder("b", remaining_tokens=7.0)]
    overdue: dict[str, Claim] = {"b": (ENTERED_OVERDUE, 0.0)}
    assert seated("sjf", held, 1, {"a": 2, "b": 2}, {}, num_promised=2) == (["b"], [])
    assert seated("sjf", held, 1, {"a": 2, "b": 2}, {}, overdue, num_promised=2) == (["a"], [])
    assert seated("sjf", held, 0, {"a": 2, "b": 2}, {"a": 1}, overdue, num_promised=3) == (["a", "b"], [])


def test_a_waiter_of_a_higher_queue_displaces_one_of_a_lower_queue() -> None:
    held = [holder("served", attained_s=3.0, turn_s=3.0), holder("more", attained_s=9.0, turn_s=9.0)]
    owned, needs = {"served": 2, "more": 2}, {"new": 2}
    assert seated("las", [*held, waiter("new")], 0, owned, needs) == (["more"], [])
    assert seated("sjf", [*held, waiter("new")], 0, owned, needs) == ([], ["new"])
    at_first = [holder("served", attained_s=3.0, turn_s=0.1), holder("more", attained_s=9.0, turn_s=0.4)]
    assert seated("las", [*at_first, waiter("new")], 0, owned, needs) == ([], ["new"]), "not before S_1 in a turn"


def test_one_a_round_displaces_others() -> None:
    held = [holder("a", attained_s=9.0, turn_s=9.0), holder("b", attained_s=9.0, turn_s=9.0, arrived_at=1.0)]
    new = [waiter("x"), waiter("y", arrived_at=1.0), waiter("z", arrived_at=2.0)]
    assert seated("las", [*held, *new], 0, {"a": 2, "b": 2}, dict.fromkeys("xyz", 1)) == (["b"], ["z"])


def test_what_one_was_given_is_free_again_when_it_leaves() -> None:
    """It has three pages and takes the free one; then the first waiter displaces it, and the second has that page."""
    held = [holder("a", attained_s=9.0, turn_s=9.0), waiter("x"), waiter("y", arrived_at=1.0)]
    assert seated("las", held, 1, {"a": 3}, {"a": 1, "x": 3, "y": 1}) == (["a"], [])


def test_who_has_just_been_let_in_gives_way_after_those_who_were_served() -> None:
    held = [holder("a", remaining_tokens=1.0), holder("b", remaining_tokens=5.0), holder("new", turn_s=0.0)]
    owned, needs = {"a": 2, "b": 2, "new": 2}, {"a": 1}
    assert seated("sjf", held, 0, owned, needs, {"new": (IN_FIRST_S, 0.0)}) == (["b"], [])
    assert seated("sjf", held, 0, owned, {"b": 1}, {"new": (IN_FIRST_S, 0.0)}) == ([], ["b"])


def test_first_come_first_served_knows_no_claims_but_age() -> None:
    """The session that came last gives way, even if it was let in just now, or because it had waited too long."""
    held = [holder("a"), holder("b", arrived_at=1.0, turn_s=0.0), holder("c", arrived_at=2.0, turn_s=0.0)]
    owned = {"a": 2, "b": 2, "c": 2}
    claims: dict[str, Claim] = {"b": (IN_FIRST_S, 0.0), "c": (ENTERED_OVERDUE, 0.0)}
    assert seated("fcfs", held, 0, owned, {"a": 3}, claims) == (["c", "b"], [])
    assert seated("fcfs", held, 0, owned, {"c": 1}, claims) == ([], ["c"])


@pytest.mark.parametrize("order", ORDERS)
def test_nobody_passes_one_that_has_waited_for_too_long(order: str) -> None:
    """Also nobody that would fit; but one that promises leave no room for holds up nobody."""
    overdue = waiter("overdue", attained_s=50.0, remaining_tokens=1e6)
    jobs = [overdue, waiter("new", waits_since=AGING_S), holder("first", turn_s=0.1)]
    needs = {"overdue": 3, "new": 1}
    assert seated(order, jobs, 2, {"first": 1}, needs, now=AGING_S + 1.0) == ([], ["new", "overdue"])
    assert seated(order, jobs, 2, {"first": 1}, needs, now=AGING_S - 1.0) == ([], ["overdue"])
    assert seated(order, jobs, 2, {"first": 1}, needs, now=AGING_S + 1.0, num_promised=1) == ([], ["overdue"])


KNOWN = {
    "arrived_at": st.floats(0.0, 9.0),
    "attained_s": st.floats(0.0, 40.0),
    "remaining_tokens": st.floats(0.0, 500.0),
    "round_s": st.floats(0.0, 0.1),
}


@st.composite
def scenes(draw: st.DrawFn) -> dict[str, Any]:
    order = draw(st.sampled_from(ORDERS))
    jobs: list[Job] = []
    owned: dict[str, int] = {}
    needs: dict[str, int] = {}
    claims: dict[str, Claim] = {}
    for number in range(draw(st.integers(1, 8))):
        known: dict[str, Any] = {name: draw(values) for name, values in KNOWN.items()}
        name = str(number)
        if draw(st.booleans()):
            known |= {"waits_since": None, "turn_s": draw(st.floats(0.0, 2.0))}
            owned[name] = draw(st.integers(0, 5))
            claims[name] = (draw(st.integers(0, 2)), 0.0)
            if draw(st.booleans()):
                needs[name] = draw(st.integers(0, 5))
        else:
            known["waits_since"] = draw(st.floats(0.0, 100.0))
            needs[name] = draw(st.integers(1, 6))
        jobs.append(Job(job_id=name, **known))
    num_promised = draw(st.integers(0, 3))
    num_free = draw(st.integers(0, 6))
    return locals()


@given(scenes())
def test_what_is_given_is_there_and_nobody_leaves_or_waits_in_vain(scene: dict[str, Any]) -> None:
    owned, needs, num_free, num_promised = (scene[key] for key in ("owned", "needs", "num_free", "num_promised"))
    given_ = scene["order"], scene["jobs"], num_free, owned, needs, scene["claims"]
    leave, wait = seated(*given_, num_promised=num_promised, now=50.0)
    assert len(set(leave)) == len(leave)
    assert not set(leave) & set(wait)
    given = sum(pages for name, pages in needs.items() if name not in leave and name not in wait) + num_promised
    left = num_free + sum(owned[name] for name in leave) - given
    assert left >= 0 or set(leave) == set(owned), "or the promises are more than memory holds"
    if not leave:
        assert all(needs[name] > left for name in wait if name in owned), "what it needs is not there"
    if left >= 0 and leave and not num_promised:
        assert given > 0, "somebody moves for it"
