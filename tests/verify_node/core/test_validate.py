"""What must hold is looked at, and a transition that breaks it is found, by the session's id and what is wrong."""

import pytest

from experiments.simulation.faults import play
from experiments.simulation.settings import Settings, with_faults
from goodspeed.engine.paged.pages import PagePool
from goodspeed.wire.messages import Ack
from tests.fakes import Desk, make_open, session_id
from verify_node.core.register import Register
from verify_node.session.client import Client
from verify_node.session.phase import BrokenInvariant, Phase, WrongPhase
from verify_node.session.session import Session


@pytest.fixture
def desk():
    """A session that has its first length, and one that is new."""
    desk = Desk()
    desk.hello()
    desk.open()
    desk.round()
    desk.open(number=2)
    return desk


def test_what_is_sound_is_not_found_fault_with(desk):
    for _ in range(3):
        num_tokens = len(desk.session().tokens)
        desk.draft()
        desk.core.validate()  # raises BrokenInvariant, as the next tests show
        desk.round()
        desk.core.validate()
        assert len(desk.session().tokens) > num_tokens


BREAKS = {
    "length without a phase": (lambda desk: setattr(desk.session(), "assigned", 0), "0 tokens are assigned"),
    "phase without a draft": (lambda desk: setattr(desk.session(), "phase", Phase.DRAFTED), "its phase and its draft"),
    "too much assigned": (lambda desk: setattr(desk.session(), "assigned", 99), "99 tokens are assigned"),
    "an end without a reason": (lambda desk: setattr(desk.session(), "phase", Phase.FINISHED), "it ends for None"),
    "acknowledged too much": (lambda desk: setattr(desk.session(), "acked", 99), "99 tokens of 4 are acknowledged"),
    "tokens from nowhere": (lambda desk: desk.session(2).tokens.append(1), "tokens that no verdict told"),
    "all is cached": (lambda desk: desk.core.pool.extend(session_id(1), 3), "6 tokens cached of 4"),
    "memory of nobody": (lambda desk: desk.core.pool.extend(session_id(7), 3), "memory that will not be freed"),
    "an unknown peer": (lambda desk: desk.session().move_to(b"?"), "which is not connected"),
    "an unknown client": (lambda desk: desk.core.scheduler.clients.clear(), "that the scheduler does not know"),
    "more than drafted": (lambda desk: desk.session().client.count_draft(1, 2), "more drafted tokens were accepted"),
}


@pytest.mark.parametrize(("breaks", "what"), BREAKS.values(), ids=BREAKS)
def test_what_is_wrong_is_said(desk, breaks, what):
    desk.core.validate()
    breaks(desk)
    with pytest.raises(BrokenInvariant, match=what):
        desk.core.validate()


def test_the_session_is_named(desk):
    desk.session().hope = 2.0
    with pytest.raises(BrokenInvariant, match=rf"session {session_id(1).hex()} \(awaiting\): hope is 2.0"):
        desk.core.validate()


def test_a_round_in_flight_is_looked_at(desk):
    desk.draft()
    assert desk.core.plan(desk.now) is not None
    desk.session().draft = desk.honest_draft(alpha=0.5)
    desk.core.validate()
    desk.session().tokens.append(1)
    with pytest.raises(BrokenInvariant, match="session"):
        desk.core.validate()


# -- transitions that forget something ---------------------------------------------------------------------------------

SIMPLE = with_faults(Settings(num_clients=3, num_pages=24, latency_s=(0.02,)), cancel=0.5)
take_draft, assign, commit, drop = Session.take_draft, Session.assign, Session.commit, Register.drop


def forgets_cannot_draft(session, length, probe, number):
    session.cannot_draft = True
    return assign(session, length, probe, number)


def keeps_the_draft(session, tokens, logprobs=()):
    draft = session.draft
    taken = commit(session, tokens, logprobs)
    session.draft = draft
    return taken


def forgets_the_phase(session, draft, now):
    take_draft(session, draft, now)
    session.phase = Phase.AWAITING


def forgets_the_memory(register, session):
    drop(register, session)
    register._released.clear()


SABOTAGE = {
    "assign leaves cannot_draft": (Session, "assign", forgets_cannot_draft, "cannot draft"),
    "commit keeps the draft": (Session, "commit", keeps_the_draft, "its phase and its draft disagree"),
    "take_draft leaves the phase": (Session, "take_draft", forgets_the_phase, "its phase and its draft disagree"),
    "a client's late drafts go wrong": (
        Client,
        "draft_arrived",
        lambda client: setattr(client, "num_late", -1),
        "late",
    ),
    "drop does not release": (Register, "drop", forgets_the_memory, "memory that will not be freed"),
    "a preemption leaves the memory": (PagePool, "free", lambda pool, key: pool.truncate(key, 0), "has memory"),
}


@pytest.mark.parametrize(("owner", "name", "broken", "what"), SABOTAGE.values(), ids=SABOTAGE)
def test_a_transition_that_forgets_something_is_found_in_a_world(monkeypatch, owner, name, broken, what):
    monkeypatch.setattr(owner, name, broken)
    _, found = play(1, SIMPLE)
    assert found.num_broken == 1
    assert any("BrokenInvariant" in line and what in line for line in found.what), found.what


def test_a_draft_in_the_wrong_phase_is_not_taken(desk):
    draft = desk.honest_draft(2)
    with pytest.raises(WrongPhase, match=r"is opened: take_draft"):
        desk.session(2).take_draft(draft, 0.0)


def test_another_client_with_the_same_boot_id_takes_no_sessions_along(desk):
    """The id is equal by chance, or because it was told: the sessions stay with the connection that they came by."""
    same = desk.core.peers[b"a"].boot_id
    desk.hello("b", boot_id=same)
    assert {session.peer_id for session in desk.core.sessions.values()} == {b"a"}
    assert set(desk.core.peers) == {b"a", b"b"}
    assert desk.up("a", Ack(session_id(1), make_open().epoch, len(desk.session().tokens))) == []
