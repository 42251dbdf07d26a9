"""The draft node's standing with the verify node: handshake, silence, restarts, refusals."""

from itertools import pairwise

import pytest

from draft_node.core.link import MAX_BACKOFF_S, REBUILD_S, Command
from goodspeed.errors import PeerRefused
from goodspeed.wire.handshake import VERSION, Heartbeat
from goodspeed.wire.messages import Refusal
from tests.draft_node.core.scripted import make_link
from tests.fakes import make_welcome, replace_message, session_id

WELCOME = make_welcome()


@pytest.fixture
def link():
    return make_link()


@pytest.fixture
def connected(link):
    link.tick(0.0)
    assert link.heard(WELCOME, 0.0) == [Command.OPEN_SESSIONS]
    return link


def test_an_unanswered_hello_is_repeated_ever_more_rarely(link):
    said = {step / 10: commands for step in range(300) if (commands := link.tick(step / 10))}
    assert all(commands[-1] is Command.SAY_HELLO for commands in said.values())
    gaps = [round(after - before, 1) for before, after in pairwise(said)]
    assert gaps[:4] == [1.0, 2.0, 4.0, MAX_BACKOFF_S]
    assert max(gaps) == MAX_BACKOFF_S
    assert link.away_s(30.0) == 30.0


def test_a_socket_has_time_for_its_handshake_before_it_is_made_anew(link):
    """A draft node with keys that is a second away needs five seconds."""
    said = {step / 10: commands for step in range(600) if (commands := link.tick(step / 10))}
    anew = [0.0, *(time for time, commands in said.items() if commands == [Command.RECONNECT, Command.SAY_HELLO])]
    assert len(anew) > 3
    assert all(after - before > REBUILD_S for before, after in pairwise(anew))


def test_welcome_opens_the_sessions_once(connected):
    assert connected.connected
    assert connected.away_s(1.0) == 0.0
    assert connected.heard(WELCOME, 1.0) == []  # an answer to a repeated Hello


def test_a_restart_is_seen_by_the_boot_id(connected):
    assert connected.heard(Heartbeat(b"verify-1"), 1.0) == []
    assert connected.heard(Heartbeat(b"verify-2"), 1.0) == [Command.DROP_SESSIONS, Command.SAY_HELLO]
    assert connected.heard(Heartbeat(b"verify-2"), 1.1) == []  # already known
    assert connected.heard(replace_message(WELCOME, boot_id=b"verify-2"), 1.2) == [Command.OPEN_SESSIONS]
    assert connected.heard(Heartbeat(b"verify-2"), 1.3) == []


@pytest.mark.parametrize("code", ["version", "tokenizer"])
def test_what_no_retry_can_mend_is_raised(link, code):
    with pytest.raises(PeerRefused, match="to do") as raised:
        link.heard(Refusal(code, "what", "to do"), 1.0)
    assert raised.value.code == code
    with pytest.raises(PeerRefused, match=f"version {VERSION + 1}"):
        link.heard(replace_message(WELCOME, version=VERSION + 1), 1.0)


def test_a_connection_that_is_not_taken_is_made_anew_ever_more_rarely(link):
    """ZeroMQ does not try again by itself, or tries all the time."""
    said = {}
    for now in (step / 10 for step in range(200)):
        if commands := link.tick(now):
            said[now] = commands
            assert link.turned_away("not enrolled", now) == []  # at once, each time
    assert link.trouble == "not enrolled"
    first, *others = said.values()
    assert (first, *others) == ([Command.SAY_HELLO], *[[Command.RECONNECT, Command.SAY_HELLO]] * len(others))
    assert [round(after - before, 1) for before, after in pairwise(said)][:4] == [1.0, 2.0, 4.0, MAX_BACKOFF_S]
    assert link.heard(WELCOME, 20.0) == [Command.OPEN_SESSIONS]
    assert link.trouble is None


@pytest.mark.parametrize("code", ["not_enrolled", "wrong_name"])
def test_who_is_kept_out_goes_on_asking_and_knows_why(connected, code):
    refusal = Refusal(code, "this is wrong", "do that")
    assert connected.heard(refusal, 5.0) == [Command.DROP_SESSIONS, Command.SAY_HELLO]
    assert connected.trouble == f"this is wrong ({code}); do that"
    assert connected.heard(refusal, 5.1) == []  # to that Hello, too
    after_it = [step / 10 for step in range(51, 200)]
    times = [now for now in after_it if connected.tick(now) and not connected.heard(refusal, now)]
    assert [round(after - before, 1) for before, after in pairwise(times)] == [1.0, 2.0, 4.0, 5.0]
    assert connected.heard(WELCOME, 20.0) == [Command.OPEN_SESSIONS]
    assert connected.trouble is None


def test_a_verify_node_that_says_it_stops_is_away_at_once_and_asked_until_it_is_back(connected):
    stopping = Refusal("draining", "this verify node is stopping", "send Hello until a verify node answers")
    assert connected.heard(stopping, 1.0) == [Command.DROP_SESSIONS]
    assert connected.away_s(1.5) == 0.5
    assert connected.tick(1.9) == []  # it would only be refused again
    assert connected.tick(2.0) == [Command.SAY_HELLO]
    assert connected.heard(stopping, 2.1) == []  # still there, still stopping
    assert connected.away_s(3.0) == 2.0
    assert connected.tick(4.0) == [Command.SAY_HELLO]
    assert connected.heard(replace_message(WELCOME, boot_id=b"verify-2"), 4.1) == [Command.OPEN_SESSIONS]


def test_a_session_that_a_stopping_verify_node_does_not_open_says_nothing_of_the_others(connected):
    refused = Refusal("draining", "this verify node is stopping", "send Hello", session_id(1), 1)
    assert connected.heard(refused, 1.0) == []
    assert connected.connected
