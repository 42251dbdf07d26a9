"""From which phase each transition leads where; from all others it raises."""

import pytest

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, digest
from tests.fakes import make_open, session_id
from verify_node.session.client import Client
from verify_node.session.phase import Phase, WrongPhase
from verify_node.session.session import Session

DRAFT = Draft(session_id(1), 1, 0, 3, digest((1, 2, 3)), (4, 5))
TRANSITIONS = {
    "take_draft": lambda session: session.take_draft(DRAFT, 1.0),
    "go_without": lambda session: session.go_without(1.0, 7, 20),
    "commit": lambda session: session.commit((6,)),
    "end": lambda session: session.commit((9,)),
    "assign": lambda session: session.assign(3, 0, 7),
    "assign 0": lambda session: session.assign(0, 0, 7),
}
OPENED, AWAITING, DRAFTED, ADVANCING, COMMITTED, FINISHED = Phase
ALLOWED = {
    ("take_draft", AWAITING): DRAFTED,
    ("go_without", AWAITING): ADVANCING,
    ("commit", OPENED): COMMITTED,
    ("commit", DRAFTED): COMMITTED,
    ("commit", ADVANCING): COMMITTED,
    ("end", OPENED): FINISHED,
    ("end", DRAFTED): FINISHED,
    ("end", ADVANCING): FINISHED,
    ("assign", COMMITTED): AWAITING,
    ("assign 0", COMMITTED): ADVANCING,
}


def session_in(phase: Phase) -> Session:
    opened = make_open(stop_ids=(9,))
    client = Client("a", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0))
    session = Session(opened, b"a", client, client.acceptance, list(opened.prompt), admitted=1, acked=3, limit=23)
    session.phase = phase
    session.assigned = {OPENED: None, ADVANCING: 0, FINISHED: 0}.get(phase, 3)
    session.draft = DRAFT if phase is DRAFTED else None
    return session


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.value)
def test_each_transition_leads_where_the_picture_says_or_raises(transition: str, phase: Phase) -> None:
    session = session_in(phase)
    if (transition, phase) in ALLOWED:
        TRANSITIONS[transition](session)
        assert session.phase is ALLOWED[transition, phase]
        return
    with pytest.raises(WrongPhase, match=f"session {session_id(1).hex()} is {phase.value}"):
        TRANSITIONS[transition](session)


def test_a_draft_made_ahead_is_used_where_its_verdict_is_made_already() -> None:
    session = session_in(AWAITING)
    session.take_ahead(DRAFT, 2.0)
    assert (session.phase, session.draft, session.ready_since) == (DRAFTED, DRAFT, 2.0)


@pytest.mark.parametrize("phase", [OPENED, ADVANCING, FINISHED], ids=lambda phase: phase.value)
def test_a_draft_made_ahead_is_no_use_where_none_is_assigned(phase: Phase) -> None:
    session = session_in(phase)
    session.take_ahead(DRAFT, 2.0)
    assert (session.phase, session.draft, session.ahead) == (phase, None, None)


def test_a_commit_takes_the_draft_away() -> None:
    session = session_in(DRAFTED)
    session.commit((4, 5, 6))
    assert (session.draft, session.last_round, session.tokens) == (None, 0, [1, 2, 3, 4, 5, 6])


def test_who_lets_others_wait_is_asked_half_as_often() -> None:
    session = session_in(AWAITING)
    session.go_without(5.0, 7, 20)
    assert (session.assigned, session.cannot_draft, session.ready_since) == (0, True, 5.0)
    assert (session.client.num_late, session.client.retry_round) == (1, 7 + 40)
