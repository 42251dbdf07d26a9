"""Every rule of the draft node: what each event asks for, with the verify node there, away, and away for too long."""

import pytest

from draft_node.core.actions import Away, Connected, Deliver, EndTexts, Fail, Finish, GiveUp, Reconnect, Send, Tell
from draft_node.core.core import DraftCore
from draft_node.core.session import State
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.wire.handshake import Heartbeat, Hello, Leave
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal, Verdict
from tests.draft_node.core.scripted import make_core, messages_of, request_of
from tests.fakes import make_welcome, replace_message, session_id

WELCOME = make_welcome(context_len=100)
TIMEOUT_S, TOO_LONG_S = 3.0, 10.0
DRAINING = Fail("draining", "the node stops")
ONE, TWO = session_id(1), session_id(2)


def make(**options):
    return make_core(TIMEOUT_S, connect_timeout_s=TOO_LONG_S, **options)


def kinds(actions):
    return [type(action.message) if isinstance(action, Send) else type(action) for action in actions]


def told(actions):
    """Returns what users are told: (session, item)."""
    return [(action.session_id, action.item) for action in actions if isinstance(action, Tell)]


def verdict(number=1, tokens=(7,), may_draft=2, base_len=3, **changes):
    return replace_message(Verdict(session_id(number), 1, base_len, tuple(tokens), 0, 0, may_draft), **changes)


def refusal(code, about=None):
    return Refusal(code, "what", "what to do", about, 1 if about else 0)


@pytest.fixture
def core():
    """Connected, with one text that the verify node knows."""
    core = make()
    core.receive(WELCOME, 0.0)
    core.begin(request_of(), 0.0)
    return core


def test_tokens_and_the_end_are_for_the_user_of_the_session(core):
    core.begin(request_of(2), 0.0)
    assert told(core.receive(verdict(2), 1.0)) == [(TWO, Deliver((7,)))]
    last = core.receive(verdict(2, tokens=(8,), base_len=4, finish_reason="stop"), 2.0)
    assert (kinds(last), told(last)[-1]) == ([Tell, Close, Tell], (TWO, Finish("stop")))


def test_who_leaves_closes_the_session_once_and_its_counts_stay(core):
    core.receive(verdict(), 1.0)
    assert core.forget(ONE, 5.0) == [Send(Close(ONE, 1))]
    assert core.forget(ONE, 5.0) == []
    assert core.statistics.num_tokens == 1
    assert core.receive(verdict(base_len=4), 2.0) == []  # it comes too late


def test_a_proposal_becomes_a_draft_of_its_session_unless_the_text_is_over(core):
    actions = core.receive(verdict(), 1.0)
    wanted = actions[-1]
    assert (kinds(actions), wanted.length) == ([Tell, Ack, Propose], 2)
    proposed = Proposed(ONE, wanted.epoch, wanted.round, (8, 9))
    sent = core.proposed(proposed, 2.0)[0]
    assert (type(sent.message), sent.message.tokens) == (Draft, (8, 9))
    core.forget(ONE, 5.0)
    assert core.proposed(proposed, 6.0) == []


def test_silence_makes_another_connection_and_texts_wait(core):
    assert kinds(core.tick(TIMEOUT_S + 0.1)) == [Reconnect, Away, Hello]
    assert core.sessions[ONE].state is State.OFFLINE
    assert core.receive(verdict(), 4.0) == []  # of the connection before
    assert kinds(core.receive(WELCOME, 5.0)) == [Connected, OpenSession, Propose]
    assert core.counts.num_connected == 2


@pytest.mark.parametrize("ends", [DraftCore.broke, DraftCore.send_failed])
def test_a_connection_that_ended_or_cannot_send_drops_what_was_on_it_once(core, ends):
    assert kinds(ends(core, 1.0)) == [Reconnect, Away, Hello]
    assert ends(core, 1.1) == []  # one that was half made; a Hello is repeated by the clock


@pytest.mark.parametrize("restarts", [False, True])
def test_who_leaves_while_the_line_is_down_closes_the_session_when_it_is_back(core, restarts):
    core.begin(request_of(2), 0.0)
    core.receive(verdict(1), 1.0)
    core.broke(2.0)
    assert core.forget(ONE, 2.5) == []
    welcome = replace_message(WELCOME, boot_id=b"verify-2") if restarts else WELCOME
    messages = messages_of(core.receive(welcome, 3.0))
    assert [one for one in messages if isinstance(one, Close)] == ([] if restarts else [Close(ONE, 1)])
    assert [one.session_id for one in messages if isinstance(one, OpenSession)] == [TWO]


def test_a_message_that_is_too_large_fails_its_text_only(core):
    core.begin(request_of(2), 0.0)
    failed = Fail("too_large", "over the limit")
    assert (core.too_large(ONE, failed), core.too_large(session_id(9), failed)) == ([Tell(ONE, failed)], [])
    assert core.sessions[TWO].state is State.OPENING
    assert core.forget(ONE, 5.0) == []


def test_a_refusal_is_counted_and_one_of_a_session_goes_to_that_session(core):
    core.receive(refusal("too_many_sessions", ONE), 1.0)
    core.receive(refusal("not_enrolled"), 1.0)
    assert core.counts.refusals == {"too_many_sessions": 1, "not_enrolled": 1}
    assert core.sessions[ONE].state is State.OFFLINE  # by the second


def test_a_session_refused_again_is_opened_after_a_wait(core):
    [again, _] = core.receive(refusal("unknown_session", ONE), 1.0)
    assert isinstance(again.message, OpenSession)
    assert kinds(core.receive(replace_message(refusal("unknown_session", ONE), epoch=2), 1.0)) == [Close]
    assert kinds(core.tick(1.05)) == [Heartbeat]
    assert kinds(core.tick(1.1)) == [OpenSession, Propose]


def test_a_node_that_does_not_stay_gives_up():
    core = make()
    core.begin(request_of(), 0.0)
    assert GiveUp not in kinds(core.tick(TOO_LONG_S))
    assert kinds(core.tick(TOO_LONG_S + 0.1))[-1] is GiveUp


def test_a_node_that_stays_ends_the_texts_that_wait_and_goes_on_asking():
    core = make(stays=True)
    assert EndTexts not in kinds(core.tick(TOO_LONG_S + 0.1))  # nobody waits
    core.begin(request_of(), 0.0)
    actions = core.tick(TOO_LONG_S + 1.0)
    assert EndTexts(1) in actions
    away = Fail("verify_away", "the verify node has been away for 11 s; ask again later")
    assert told(actions) == [(ONE, away)]
    core.forget(ONE, 5.0)
    assert kinds(core.receive(WELCOME, 12.0)) == [Connected]


def test_a_drain_tells_and_closes_all_and_whoever_comes_later_is_told_too(core):
    core.begin(request_of(2), 0.0)
    actions = core.drain(DRAINING)
    assert told(actions) == [(ONE, DRAINING), (TWO, DRAINING)]
    assert kinds(actions)[2:] == [Close, Close]
    assert core.begin(request_of(3), 1.0) == [Tell(session_id(3), DRAINING)]
    assert core.forget(session_id(3), 5.0) == core.forget(ONE, 5.0) == []


def test_who_leaves_says_so_and_then_nothing_more(core):
    closed = Fail("closed", "this draft node is shutting down")
    assert core.leave(closed) == [Send(Leave()), Tell(ONE, closed)]
    assert core.forget(ONE, 5.0) == []  # the verify node ends the sessions of a node that leaves
    assert core.send_failed(1.0) == []
    assert core.begin(request_of(2), 1.0) == [Tell(TWO, closed)]
