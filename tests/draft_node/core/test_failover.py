"""A draft core with several verify nodes: what it sends where when one dies, drains, refuses or sends sessions on."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Away, Connect, Connected, Deliver, Disconnect, Fail, Reconnect, Send, Tell
from draft_node.core.links import GRACE_S, IDLE_S, JITTER_S, REDIRECT_S, TRY_S
from draft_node.core.request_queue import LATER_S
from draft_node.core.session import State
from draft_node.core.verify_nodes import Address
from goodspeed.errors import PeerRefused
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Heartbeat, Leave, Sibling
from goodspeed.wire.messages import OpenSession, Redirect, Refusal, Verdict
from tests.draft_node.core.scripted import make_core, request_of, welcome_of
from tests.fakes import session_id

A, B = Address("tcp://a:1"), Address("tcp://b:1")
ONE = session_id(1)
LATER = GRACE_S + JITTER_S + 0.1
STOPPING = Refusal("draining", "it stops", "go elsewhere")
UNFIT = Refusal("tokenizer", "it does not fit", "take another")


def make(*addresses):
    return make_core(connect_timeout_s=60.0, addresses=addresses or (A, B))


def alone():
    """A core that knows one verify node, which is there."""
    core = make(A)
    core.receive(welcome_of("a"), 1.0, 0)
    return core


def with_both(target="t"):
    """A core with links 0 and 1 that are there, and a session on link 0, whose home it is."""
    core = make()
    core.tick(TRY_S)
    core.receive(welcome_of("a"), TRY_S, 0)
    core.receive(welcome_of("b", target), TRY_S, 1)
    core.begin(request_of(), TRY_S)
    return core


def sent(actions, kind):
    return [(one.link, one.message) for one in of_kind(actions, Send) if isinstance(one.message, kind)]


def opened(actions):
    return [(link, message.epoch, message.committed, message.hops) for link, message in sent(actions, OpenSession)]


def of_kind(actions, kind):
    return [one for one in actions if isinstance(one, kind)]


def verdict(epoch, base_len, *tokens):
    return Verdict(ONE, epoch, base_len, tokens, 0, 0)


def redirect(epoch=1, endpoint=B.endpoint, hops=1, reason="load", key=""):
    return Redirect(ONE, epoch, endpoint, key, hops, reason)


def beat(core, link, boot, now):
    """This verify node is there; the others are silent."""
    core.receive(Heartbeat(boot.encode().ljust(8, b"-")), now, link)


def tell(core, *siblings):
    """The first verify node names its fleet."""
    core.receive(Heartbeat(b"a-------", siblings), 1.5, 0)


def test_the_next_address_is_tried_when_the_first_does_not_answer_and_serves_until_it_is_lost():
    core = make()
    assert of_kind(core.tick(TRY_S - 0.1), Connect) == []
    assert of_kind(core.tick(TRY_S), Connect) == [Connect(1, B)]
    core.begin(request_of(), TRY_S)
    actions = core.receive(welcome_of("b"), 1.5, 1)
    assert of_kind(actions, Connected)[0].link == 1
    assert opened(actions) == [(1, 1, (), 0)]
    assert core.link is core.links[1]
    core.receive(welcome_of("a"), 2.0, 0)
    assert core.link is core.links[1]


def test_a_session_goes_on_elsewhere_with_what_is_committed_once_its_link_is_lost_for_the_grace():
    core = with_both()
    core.receive(verdict(1, 3, 7, 8), 1.2, 0)
    assert of_kind(core.broke(2.0, 0), Reconnect | Away) == [Reconnect(0)]
    assert opened(core.tick(2.0 + 0.9 * GRACE_S)) == []
    assert opened(core.tick(2.0 + LATER)) == [(1, 2, (7, 8), 0)]


@pytest.mark.parametrize(("reason", "home"), [("slo", 0), ("load", 1), ("draining", 1)])
def test_a_redirect_is_obeyed_and_moves_the_home_where_it_concerns_all(reason, home):
    core = with_both()
    assert opened(core.receive(redirect(hops=2, reason=reason), 2.0, 0)) == [(1, 2, (), 2)], "told how often"
    assert core.counts.num_redirected == 1
    assert core.links.home == home


@pytest.mark.parametrize(("endpoint", "key"), [("tcp://evil:1", ""), ("tcp://c:1", "forged"), ("tcp://c:1", "")])
def test_a_redirect_to_an_unknown_address_or_key_is_not_obeyed_and_the_session_asks_again(endpoint, key):
    core = with_both()
    tell(core, Sibling(A.endpoint), Sibling("tcp://c:1", "true"))
    actions = core.receive(redirect(endpoint=endpoint, key=key), 2.0, 0)
    assert of_kind(actions, Connect) == opened(actions) == []
    assert opened(core.tick(2.0 + LATER_S + 0.1)) == [(0, 2, (), 1)]
    again = core.receive(redirect(2, "tcp://c:1", key="true"), 5.0, 0)
    assert of_kind(again, Connect) == [Connect(2, Address("tcp://c:1", "true"))]


def test_a_session_is_not_sent_on_more_often_than_max_hops_and_a_token_makes_it_anew():
    core = with_both()
    session, link = core.sessions[ONE], 0
    for hop in range(MAX_HOPS):
        link = opened(core.receive(redirect(session.epoch, (B, A)[link].endpoint, hop + 1), 2.0, link))[0][0]
    assert session.num_hops == MAX_HOPS
    assert opened(core.receive(redirect(session.epoch, (B, A)[link].endpoint, MAX_HOPS), 2.0, link)) == []
    assert opened(core.tick(2.0 + LATER_S + 0.1))
    core.receive(verdict(session.epoch, 3, 7), 4.0, core.links.on(ONE))
    assert session.num_hops == 0


def test_a_redirect_of_a_past_epoch_or_of_another_link_is_ignored():
    core = with_both()
    assert core.receive(redirect(epoch=0), 2.0, 0) == []
    assert core.receive(redirect(), 2.0, 1) == []
    assert core.links.on(ONE) == 0


def test_a_session_that_was_sent_to_who_does_not_answer_goes_anywhere():
    core = alone()
    core.begin(request_of(), 1.0)
    tell(core, Sibling(A.endpoint), Sibling(B.endpoint))
    assert of_kind(core.receive(redirect(), 2.0, 0), Connect) == [Connect(1, B)]
    moved = []
    for step in range(1, 40):
        beat(core, 0, "a", 2.0 + 0.1 * step)
        moved += [(step, *one) for one in opened(core.tick(2.0 + 0.1 * step))]
    assert moved == [(pytest.approx(10 * REDIRECT_S, abs=1), 0, 2, (), 1)]


def test_a_verify_node_that_stops_sends_new_and_old_sessions_home_elsewhere():
    core = with_both()
    core.receive(STOPPING, 2.0, 0)
    assert core.links.home == 1
    assert opened(core.begin(request_of(2), 2.0)) == [(1, 1, (), 0)]
    assert opened(core.tick(2.15)) == [(1, 2, (), 0)]


def test_an_idle_link_is_given_up_with_leave():
    core = with_both()
    gone = []
    for second in range(2, int(IDLE_S) + 5):
        beat(core, 0, "a", second)
        beat(core, 1, "b", second)
        gone += of_kind(core.tick(second), Disconnect | Send)
    assert of_kind(gone, Disconnect) == [Disconnect(1)]
    assert gone.index(Send(Leave(), 1)) == gone.index(Disconnect(1)) - 1
    assert 1 not in core.links


def test_messages_to_a_lost_verify_node_are_dropped_with_its_link():
    core = with_both()
    core.broke(2.0, 1)
    gone = []
    for second in range(2, int(IDLE_S) + 5):
        beat(core, 0, "a", second)
        gone += of_kind(core.tick(second), Disconnect | Reconnect)
    assert gone[-2:] == [Reconnect(1), Disconnect(1)], "closing a channel waits for messages in its queue"


def test_two_endpoints_of_one_process_are_one_link_and_nothing_is_opened_twice():
    core = make()
    core.tick(TRY_S)
    core.receive(welcome_of("same"), TRY_S, 0)
    core.begin(request_of(), TRY_S)
    actions = core.receive(welcome_of("same"), 1.5, 1)
    assert of_kind(actions, Disconnect) == [Disconnect(0)]
    assert sent(actions, Leave) == [], "it would end the sessions"
    assert opened(actions) == []
    assert core.links.on(ONE) == 1
    assert core.receive(verdict(1, 3, 7), 1.6, 1)[0] == Tell(ONE, Deliver((7,)))


def test_a_text_fails_where_nobody_has_its_target_any_more():
    core = with_both("u")
    core.receive(Heartbeat(b"another-"), 2.0, 0)
    actions = [*core.receive(welcome_of("a2", "u"), 2.1, 0), *core.tick(2.1 + LATER)]
    assert [one.item.code for one in of_kind(actions, Tell) if isinstance(one.item, Fail)] == ["target_changed"]


@pytest.mark.parametrize("code", ["tokenizer", "version"])
def test_one_of_two_verify_nodes_that_refuses_this_node_is_survived_and_the_last_one_is_not(code):
    core = make()
    core.receive(replace(UNFIT, code=code), 0.5, 0)
    assert of_kind(core.tick(TRY_S), Connect) == [Connect(1, B)]
    core.begin(request_of(), TRY_S)
    assert opened(core.receive(welcome_of("b"), 1.5, 1)) == [(1, 1, (), 0)]
    with pytest.raises(PeerRefused):
        core.receive(replace(UNFIT, code=code), 1.6, 1)


def test_why_one_refuses_this_node_is_known_while_the_other_is_away():
    core = make()
    core.receive(UNFIT, 0.5, 0)
    core.tick(TRY_S)
    assert core.links.trouble == "tcp://a:1: it does not fit (tokenizer); take another"
    core = make()
    core.tick(TRY_S)
    core.receive(Refusal("not_enrolled", "its key is not enrolled", "enrol it"), TRY_S, 1)
    assert core.links.trouble == "tcp://b:1: its key is not enrolled (not_enrolled); enrol it"
    for now in range(2, 30):
        core.tick(float(now))
    assert core.links.trouble is None, "that was long ago"


def test_a_draining_verify_node_is_one_to_go_on_with():
    core = alone()
    tell(core, Sibling(A.endpoint), Sibling(B.endpoint))
    core.begin(request_of(), 2.0)
    core.receive(redirect(), 2.1, 0)
    tell(core, Sibling(A.endpoint, is_draining=True), Sibling(B.endpoint))
    assert core.receive(UNFIT, 2.2, 1) == []
    beat(core, 0, "a", 5.0)
    assert opened(core.tick(2.1 + REDIRECT_S)) == [(0, 2, (), 1)]
    assert core.receive(redirect(2), 6.0, 0) == [], "B is no place to wait for"
    assert core.links.on(ONE) == 0
    core.receive(STOPPING, 6.5, 0)
    assert core.receive(UNFIT, 6.6, 1) == [], "A may be back"


def test_what_a_verify_node_says_of_a_session_that_is_not_with_it_is_ignored():
    core = with_both()
    before = core.sessions[ONE].epoch
    assert core.receive(verdict(before, 3, 7), 2.0, 1) == []
    assert core.receive(Refusal("failed", "no", "no", session_id=ONE, epoch=before), 2.0, 1) == []
    assert core.sessions[ONE].state is State.OPENING
    assert core.receive(verdict(before, 3, 7), 2.0, 0)[0] == Tell(ONE, Deliver((7,)))


def test_the_last_word_goes_to_all_who_are_there():
    assert sent(with_both().leave(Fail("closed", "bye")), Leave) == [(0, Leave()), (1, Leave())]
