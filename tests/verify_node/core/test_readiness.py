"""When a round starts, and when somebody's draft is waited for: what `plan` remembers between two messages is true."""

import pytest

from goodspeed.wire.messages import Close
from tests.fakes import Desk, session_id


def drafting(rounds, *, linger_s=0.0):
    """Three clients, each of whom is expected to draft."""
    desk = Desk(rounds=rounds, policy="fixed", budget=6, linger_s=linger_s)
    for number, name in enumerate("abc", 1):
        desk.hello(name)
        desk.open(name, number)
    desk.round()
    assert [desk.session(number).assigned for number in (1, 2, 3)] == [2, 2, 2]
    return desk


def taking_part(planned):
    return None if planned is None else {entry.session_id for entry in planned.entries}


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_barrier_rounds_wait_for_everybody_in_whatever_order_they_come(order):
    desk = drafting("barrier")
    for number in order:
        assert desk.core.plan(desk.now) is None
        desk.draft("abc"[number - 1], number)
    assert taking_part(desk.core.plan(desk.now)) == {session_id(1), session_id(2), session_id(3)}


def test_barrier_rounds_do_not_wait_for_one_who_left_or_opened_again():
    desk = drafting("barrier")
    desk.draft("a", 1)
    desk.draft("b", 2)
    assert desk.core.plan(desk.now) is None
    desk.up("c", Close(session_id(3), 1))
    assert taking_part(desk.core.plan(desk.now)) == {session_id(1), session_id(2)}

    desk = drafting("barrier")
    desk.draft("a", 1)
    desk.draft("b", 2)
    assert desk.core.plan(desk.now) is None
    desk.open("c", 3, epoch=2, committed=desk.text(3))  # is to be told its length anew
    assert taking_part(desk.core.plan(desk.now)) == {session_id(1), session_id(2), session_id(3)}


def test_barrier_rounds_do_not_wait_for_those_who_do_not_draft():
    desk = drafting("barrier")
    desk.hello("d")
    desk.open("d", 4, max_draft=0)
    for number, name in enumerate("abc", 1):
        desk.draft(name, number)
    assert session_id(4) in taking_part(desk.core.plan(desk.now))


def test_continuous_rounds_linger_only_while_a_draft_is_on_its_way():
    desk = drafting("continuous", linger_s=0.5)
    desk.draft("a", 1)
    started = desk.now
    desk.core.round_s = 1.0
    for late in (2, 3):
        desk.session(late).due_at = started + 0.4
    desk.core.tick(started)  # heartbeats are not due for a while
    for _ in range(3):
        assert desk.core.plan(desk.now) is None
        assert desk.core.wake_at == started + 0.5
        desk.now += 0.1
    desk.draft("b", 2)
    assert desk.core.plan(desk.now) is None
    desk.now = started + 0.5
    assert taking_part(desk.core.plan(desk.now)) == {session_id(1), session_id(2)}


def test_continuous_rounds_start_at_once_when_nobody_is_left_to_wait_for():
    desk = drafting("continuous", linger_s=0.5)
    for number, name in enumerate("abc", 1):
        assert desk.core.plan(desk.now) is None
        desk.draft(name, number)
    assert taking_part(desk.core.plan(desk.now)) == {session_id(1), session_id(2), session_id(3)}


def test_a_draft_is_due_after_the_way_there_and_back_and_its_drafting():
    desk = drafting("continuous")
    session = desk.session(1)
    session.assigned, session.round_trip_s, session.client.draft_s_per_token = 3, 0.02, 0.005
    assert session.answer_s == pytest.approx(0.02 + 4 * 0.005)  # it catches up, which takes about as long as a token
    session.hope, session.ahead_share = 1.0, 0.9  # it is made already
    assert session.answer_s == 0.02


def test_a_verdict_says_when_the_next_draft_is_due():
    desk = drafting("continuous")
    session = desk.session(1)
    session.client.draft_s_per_token = 0.01
    desk.now += 1.0
    for number, name in enumerate("abc", 1):
        desk.draft(name, number)
    desk.round()
    assert session.assigned
    assert session.due_at == desk.now + session.answer_s > desk.now
