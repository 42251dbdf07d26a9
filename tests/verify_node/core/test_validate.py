"""`validate` finds every broken invariant, by the session's id and what is wrong."""

import pytest

from experiments.simulation.faults import play
from experiments.simulation.nodes.invariants import validate
from experiments.simulation.settings import Settings, with_faults
from goodspeed.engine.paged.pages import PagePool
from goodspeed.wire.messages import Ack
from tests.fakes import Desk, make_open, session_id
from verify_node.core.sessions import Sessions
from verify_node.session.client import Client
from verify_node.session.drafted import Drafted
from verify_node.session.phase import BrokenInvariant, Phase
from verify_node.session.session import Session


@pytest.fixture
def desk():
    """A session for whose draft rounds wait, and one that is new."""
    desk = Desk(rounds="barrier")
    desk.hello()
    desk.open()
    desk.round()
    desk.open(number=2)
    return desk


def test_what_is_sound_is_not_found_fault_with(desk):
    for _ in range(3):
        num_tokens = len(desk.session().tokens)
        for number in (1, 2):
            desk.draft(number=number)
        validate(desk.core)  # raises BrokenInvariant, as the next tests show
        desk.round()
        validate(desk.core)
        assert len(desk.session().tokens) > num_tokens


@pytest.mark.parametrize(
    "event", [lambda desk: desk.core.tick(desk.now), lambda desk: desk.core.fleet.know("own", [], desk.now)]
)
def test_events_are_followed_by_a_check(desk, event):
    event(desk)
    desk.session(2).drafts.may_draft = 1
    with pytest.raises(BrokenInvariant):
        event(desk)


def drafted(desk, **changes):
    """Puts a draft there as no arrival would."""
    session = desk.session()
    session.drafts.newest = Drafted.read(desk.honest_draft(), session.tokens)._replace(**changes)


BREAKS = {
    "a permission too soon": (
        lambda desk: setattr(desk.session(2).drafts, "may_draft", 1),
        "1 tokens may be drafted before",
    ),
    "a phase without a verdict": (lambda desk: setattr(desk.session(2), "phase", Phase.RUNNING), "its last verdict"),
    "a draft for another text": (lambda desk: drafted(desk, made_on=9), "does not follow its text"),
    "a part of a draw": (
        lambda desk: drafted(desk, made_on=3, num_gone=1, proposal=b"1"),
        "of the ratio rule may be verified",
    ),
    "a draft that is used up": (lambda desk: drafted(desk, made_on=3, num_gone=1, tokens=()), "its draft is empty"),
    "a wait for nobody": (
        lambda desk: setattr(desk.session(2).drafts, "waits", True),
        "wait for a draft that is not permitted",
    ),
    "an end without a reason": (lambda desk: setattr(desk.session(), "phase", Phase.FINISHED), "it ends for None"),
    "acknowledged too much": (lambda desk: setattr(desk.session(), "acked", 99), "99 tokens of 4 are acknowledged"),
    "tokens from nowhere": (lambda desk: desk.session(2).tokens.append(1), "tokens that no verdict sent"),
    "all is cached": (lambda desk: desk.core.pool.extend(session_id(1), 3), "6 tokens cached of 4"),
    "memory of nobody": (lambda desk: desk.core.pool.extend(session_id(7), 3), "memory that will not be freed"),
    "an unknown peer": (lambda desk: desk.session().move_to(b"?"), "which is not connected"),
    "an unknown client": (lambda desk: desk.core.allocator.clients.clear(), "that the allocator does not know"),
    "more than drafted": (
        lambda desk: desk.session().client.count_draft("model", 1, 2),
        "more drafted tokens were accepted",
    ),
}


@pytest.mark.parametrize(("breaks", "what"), BREAKS.values(), ids=BREAKS)
def test_what_is_wrong_is_said(desk, breaks, what):
    validate(desk.core)
    breaks(desk)
    with pytest.raises(BrokenInvariant, match=what):
        validate(desk.core)


def test_the_session_is_named(desk):
    desk.session().acked = 99
    with pytest.raises(BrokenInvariant, match=rf"session {session_id(1).hex()} \(running\): 99 tokens"):
        validate(desk.core)


def test_a_round_in_flight_is_looked_at(desk):
    desk.draft()
    assert desk.core.plan(desk.now) is not None
    desk.draft(alpha=0.5)
    desk.session().tokens.append(1)
    with pytest.raises(BrokenInvariant, match="session"):
        validate(desk.core)


# -- transitions that forget something ---------------------------------------------------------------------------------

SIMPLE = with_faults(Settings(num_clients=3, num_pages=24, latency_s=(0.02,)), cancel=0.5)
commit, tell, drop = Session.commit, Session.tell, Sessions.drop


def keeps_the_draft(session, tokens, logprobs=()):
    known = session.drafts.newest
    taken = commit(session, tokens, logprobs)
    session.drafts.newest = known
    return taken


def forgets_the_verdict(session, verdict, now, *, waits, round_s):
    tell(session, verdict, now, waits=waits, round_s=round_s)
    session.last_verdict = None


def waits_for_everybody(session, verdict, now, *, waits, round_s):
    tell(session, verdict, now, waits=waits, round_s=round_s)
    session.drafts.waits = True


def forgets_the_memory(sessions, session, **changes):
    drop(sessions, session, **changes)
    sessions._released.clear()


def goes_wrong(client, seconds):
    client.round_trip_s = -seconds


SABOTAGE = {
    "commit keeps the draft": (Session, "commit", keeps_the_draft, "its draft does not follow its text"),
    "tell keeps no verdict": (Session, "tell", forgets_the_verdict, "its phase and its last verdict disagree"),
    "tell waits for everybody": (Session, "tell", waits_for_everybody, "that is not permitted"),
    "a client's times go wrong": (Client, "observe_round_trip", goes_wrong, "is negative"),
    "drop does not release": (Sessions, "drop", forgets_the_memory, "its memory will not be freed"),
    "a preemption leaves the memory": (PagePool, "free", lambda pool, key: pool.truncate(key, 0), "has memory"),
}


@pytest.mark.parametrize(("owner", "name", "broken", "what"), SABOTAGE.values(), ids=SABOTAGE)
def test_a_transition_that_forgets_something_is_found_in_a_world(monkeypatch, owner, name, broken, what):
    monkeypatch.setattr(owner, name, broken)
    _, found = play(1, SIMPLE)
    assert found.num_broken == 1
    assert any("BrokenInvariant" in line and what in line for line in found.what), found.what


def test_another_client_with_the_same_boot_id_takes_no_sessions_along(desk):
    """The id is equal by chance, or because it was told: the sessions stay with the connection that they came by."""
    same = desk.core.peers[b"a"].hello.boot_id
    desk.hello("b", boot_id=same)
    assert {session.peer_id for session in desk.core.sessions.values()} == {b"a"}
    assert set(desk.core.peers) == {b"a", b"b"}
    assert desk.up("a", Ack(session_id(1), make_open().epoch, len(desk.session().tokens))) == []
