"""A round starts and waits: for everybody's complete draft, a ratio session's own, or nobody.

What `plan` remembers between two messages is true.
"""

from itertools import permutations
from typing import Any

import pytest

from goodspeed.wire.messages import Close
from tests.fakes import Desk, expected, session_id
from tests.verify_node.answers import fed
from verify_node.clients.client import LATE_ROUNDS
from verify_node.scheduler.allocate import FIRST_LENGTH
from verify_node.session.draft_state import LEAST_LATE_S, MOST_LATE_S


def drafting(rounds: str = "barrier", *, num_clients: int = 3, **opened: Any) -> Desk:
    """Clients with a session each, which has had its first verdict and may draft."""
    desk = Desk(rounds=rounds, policy="fixed", budget=6, self_draft=False, lease_s=1e9, context_len=2000, num_pages=999)
    for number in range(1, num_clients + 1):
        desk.hello(name_of(number))
        desk.open(name_of(number), number, **({"max_tokens": 1000} | opened))
    desk.round()
    assert all(desk.session(number).drafts.may_draft for number in range(1, num_clients + 1))
    return desk


def draft_all(desk: Desk, *numbers: int) -> None:
    for number in numbers:
        desk.draft(name_of(number), number)


def late(rounds: str) -> Desk:
    """One client, whose ratio draft does not come."""
    desk = drafting(rounds, num_clients=1, verification="ratio")
    desk.now += MOST_LATE_S
    return desk


def name_of(number: int) -> str:
    return " abcdefgh"[number]


# -- barrier rounds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_barrier_rounds_wait_for_everybody_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    desk = drafting()
    for number in order:
        assert desk.core.plan(desk.now) is None
        desk.draft(name_of(number), number)
    planned = desk.plan()
    assert set(fed(planned)) == {1, 2, 3}
    assert [entry.num_drafted for entry in planned.entries] == [2, 2, 2]


@pytest.mark.parametrize("leaves", [True, False])
def test_barrier_rounds_do_not_wait_for_one_who_left_or_opened_again(leaves: bool) -> None:
    desk = drafting()
    desk.draft("a", 1)
    desk.draft("b", 2)
    assert desk.core.plan(desk.now) is None
    if leaves:
        desk.up("c", Close(session_id(3), 1))
    else:
        desk.open("c", 3, epoch=2, committed=desk.text(3))  # it is to be told anew what it may draft
    assert set(fed(desk.plan())) == ({1, 2} if leaves else {1, 2, 3})


@pytest.mark.parametrize("opened", [{"max_draft": 0}, {"drafter": "none"}])
def test_barrier_rounds_do_not_wait_for_those_who_do_not_draft(opened: dict[str, Any]) -> None:
    desk = drafting()
    desk.hello("d")
    desk.open("d", 4, **opened)
    for _ in range(2):
        draft_all(desk, 1, 2, 3)
        planned = desk.plan()
        assert set(fed(planned)) == {1, 2, 3, 4}
        desk.finish(planned)


def test_what_is_left_of_a_complete_draft_is_not_waited_for() -> None:
    """It went beyond what may be verified, so the node has said all that it would say."""
    desk = drafting(num_clients=1)
    desk.draft(tokens=expected()[1:12])
    [verdict] = desk.round()
    assert (verdict.num_verified, len(verdict.tokens)) == (6, 7)
    [verdict] = desk.round()
    assert (verdict.num_verified, verdict.num_accepted) == (4, 4)
    assert desk.round() == []


@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_a_draft_for_less_of_the_text_ends_no_wait_where_nothing_is_left_of_it(rounds: str) -> None:
    desk = drafting(rounds, num_clients=1, verification="ratio")
    old = desk.honest_draft()
    desk.up("a", old)
    desk.round()
    assert desk.up("a", old) == []
    assert desk.round() == []
    assert desk.session().awaits_draft
    desk.draft()
    assert len(desk.round()) == 1


# -- the ratio rule ----------------------------------------------------------------------------------------------------


def test_a_ratio_session_waits_for_its_own_draft_and_nobody_waits_with_it() -> None:
    desk = drafting("continuous", num_clients=1, verification="ratio")
    desk.hello("b")
    desk.open("b", 2, max_tokens=1000)
    for _ in range(3):
        assert [verdict.session_id for verdict in desk.round()] == [session_id(2)]
    desk.draft("a", 1, complete=False)
    assert [verdict.session_id for verdict in desk.round()] == [session_id(2)]
    desk.draft("a", 1)
    verdicts = {verdict.session_id: verdict for verdict in desk.round()}
    assert set(verdicts) == {session_id(1), session_id(2)}
    assert verdicts[session_id(1)].num_accepted == FIRST_LENGTH


def test_a_ratio_session_that_may_draft_nothing_goes_on() -> None:
    desk = drafting("continuous", num_clients=1, verification="ratio", max_tokens=4)
    desk.draft()
    while not desk.session().finished:
        assert len(desk.round()) == 1
        assert desk.session().drafts.may_draft == 0


# -- continuous rounds -------------------------------------------------------------------------------------------------


def waiting_for_b() -> Desk:
    """The draft model of b drafts anew within 50 ms, as it is known to, and rounds take a second."""
    desk = drafting("continuous")
    desk.draft("b", 2)
    client = desk.session(2).client
    for _ in range(60):
        client.observe_answer_time(0.05)
        client.model_gain.observe(4, in_time=True)
    desk.core.rounds.round_s = 1.0
    desk.round(1.0)
    desk.core.tick(desk.now)  # heartbeats are not due for a while
    assert desk.core.plan(desk.now) is None
    return desk


def test_a_continuous_round_waits_for_a_draft_that_is_about_to_arrive() -> None:
    desk = waiting_for_b()
    desk.acknowledge(1, 2, 3)
    started, due_at = desk.now, desk.session(2).drafts.timer.due_at
    for _ in range(3):
        assert desk.core.plan(desk.now) is None
        assert due_at <= desk.core.wake_at <= due_at + 0.001
        desk.now += 0.01
    desk.draft("b", 2)
    planned = desk.plan()
    assert desk.now < started + 0.05
    assert set(fed(planned)) == {1, 2, 3}
    assert planned.num_drafted == 6


def test_the_wait_is_over_when_the_draft_node_leaves() -> None:
    desk = waiting_for_b()
    desk.up("b", Close(session_id(2), 1))
    assert set(fed(desk.plan())) == {1, 3}


# -- late drafts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("usual_s", "late_s"), [(0.0, MOST_LATE_S), (0.02, LEAST_LATE_S)])
@pytest.mark.parametrize(("rounds", "opened"), [("barrier", {}), ("continuous", {"verification": "ratio"})])
def test_a_draft_is_waited_for_until_it_is_late(usual_s: float, late_s: float, rounds: str, opened: Any) -> None:
    desk = drafting(rounds, num_clients=1, **opened)
    desk.draft()
    desk.session().client.answer_s, desk.session().client.answer_tokens = usual_s, 17.0
    desk.round()
    told_at = desk.now
    assert desk.core.plan(told_at + late_s - 0.001) is None
    assert desk.core.wake_at <= told_at + late_s
    [verdict] = desk.finish(planned) if (planned := desk.core.plan(told_at + late_s)) else []
    assert (verdict.num_verified, len(verdict.tokens)) == (0, 1)


@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_nobody_waits_for_a_late_one_until_its_draft_is_complete_again(rounds: str) -> None:
    desk = late(rounds)
    for _ in range(5):
        [verdict] = desk.round()
        assert verdict.num_verified == 0
        desk.acknowledge(1)
    desk.draft()
    desk.session().client.answer_s = 0.001  # drafts usually take no longer
    [verdict] = desk.round()
    assert verdict.num_accepted == (6 if rounds == "barrier" else FIRST_LENGTH)
    assert desk.round() == []  # its next draft is waited for
    assert desk.text() == expected(max_tokens=1000)[: len(desk.text())]


def test_of_a_late_draft_the_others_lose_no_more_than_one_wait() -> None:
    desk = drafting()
    desk.now += MOST_LATE_S
    for _ in range(2 * LATE_ROUNDS - 2):
        draft_all(desk, 1, 2)
        desk.acknowledge(3)
        assert len(desk.round()) == 3
    assert {desk.session(number).client.num_late for number in (1, 2)} == {0}


@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_one_that_can_only_draft_while_it_is_waited_for_is_waited_for_again(rounds: str) -> None:
    """Each draft takes two rounds: by then the text that it was made for is left behind, and it never counts."""
    desk = late(rounds)
    stale, num_rounds = [desk.honest_draft()], 0
    while desk.round():
        desk.acknowledge(1)
        stale.append(desk.honest_draft())
        assert desk.up("a", stale[-3] if len(stale) > 2 else stale[0]) == []
        num_rounds += 1
    assert num_rounds == 2 * LATE_ROUNDS
    assert desk.session().awaits_draft
    desk.up("a", stale[-1])
    [verdict] = desk.round()
    assert verdict.num_accepted == (6 if rounds == "barrier" else FIRST_LENGTH)
    assert desk.session().client.num_late == 0


def test_a_client_whose_draft_was_late_does_not_begin_anew_with_a_new_session() -> None:
    desk = drafting(num_clients=1)
    assert desk.round() == []
    desk.now += MOST_LATE_S
    assert len(desk.round()) == 1
    desk.up("a", Close(session_id(1), 1))
    desk.open("a", 2, max_tokens=1000)
    for _ in range(2 * LATE_ROUNDS - 2):
        [verdict] = desk.round()
        assert verdict.may_draft > 0, "no round waits for it"
        desk.acknowledge(2)


def test_one_that_never_drafts_is_waited_for_ever_more_rarely() -> None:
    desk = drafting(num_clients=1)
    gaps: list[int] = []
    num_rounds = 0
    while len(gaps) < 3:
        if desk.round():
            desk.acknowledge(1)
            num_rounds += 1
        else:
            desk.now += MOST_LATE_S
            gaps.append(num_rounds)
            num_rounds = 0
    assert gaps == [0, 2 * LATE_ROUNDS, 4 * LATE_ROUNDS]
