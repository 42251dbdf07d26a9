"""A verify node that stops, and a draft node that leaves: what is said, and what becomes of rounds and sessions."""

import pytest

from goodspeed.wire.messages import Refusal, Verdict
from tests.fakes import Desk, session_id


@pytest.fixture
def desk():
    """One client with a session that is drafting, and another that has none."""
    desk = Desk()
    desk.hello("a")
    desk.hello("b")
    desk.open("a")
    desk.round()
    return desk


def test_the_round_in_flight_ends_and_no_other_begins(desk):
    desk.draft("a")
    planned = desk.core.plan(desk.now)
    desk.core.drain()
    [verdict] = desk.finish(planned)
    assert isinstance(verdict, Verdict)
    assert verdict.num_accepted == len(verdict.tokens) - 1 > 0
    desk.draft("a")
    assert desk.core.plan(desk.now) is None


def test_nobody_is_let_in_any_more(desk):
    desk.core.drain()
    [session] = desk.open("b", 2)
    assert (session.code, session.session_id, session.epoch) == ("draining", session_id(2), 1)
    [again] = desk.open("a", epoch=2)
    assert (again.code, desk.session().epoch) == ("draining", 1)
    hello = desk.hello("c")
    assert (hello.code, hello.session_id) == ("draining", None)
    assert desk.core.replies.refusals == {"draining": 3}


def test_everybody_is_told_at_the_end(desk):
    desk.core.drain()
    told = desk.core.farewell(0.0)
    assert [send.peer_id for send in told] == [b"a", b"b"]
    assert all(isinstance(send.message, Refusal) and send.message.code == "draining" for send in told)
    assert all(send.message.session_id is None for send in told)
    assert not desk.core.replies.refusals  # nothing of theirs was refused
