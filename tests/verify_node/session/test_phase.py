"""Each transition leads from its phases to the right ones; from all others it raises."""

import pytest

from tests.fakes import session_id
from tests.verify_node.session.sessions import a_draft, make_session
from verify_node.session.client import LATE_ROUNDS
from verify_node.session.phase import Phase, WrongPhase
from verify_node.session.session import Session

TRANSITIONS = {
    "commit": lambda session: session.commit((6,)),
    "end": lambda session: session.commit((9,)),
}
OPENED, RUNNING, FINISHED = Phase
ALLOWED = {
    ("commit", OPENED): RUNNING,
    ("commit", RUNNING): RUNNING,
    ("end", OPENED): FINISHED,
    ("end", RUNNING): FINISHED,
}


def session_in(phase: Phase) -> Session:
    session: Session = make_session(stop_ids=(9,))
    session.phase = phase
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


@pytest.mark.parametrize("phase", [OPENED, RUNNING], ids=lambda phase: phase.value)
def test_a_draft_changes_no_phase_and_is_used_up_by_the_text(phase: Phase) -> None:
    session = session_in(phase)
    session.take_draft(a_draft(tokens=(4, 5, 6)), 2.0)
    assert session.drafted is not None
    assert (session.phase, session.drafted.tokens) == (phase, (4, 5, 6))
    session.commit((4, 5))
    assert (session.drafted.tokens, session.tokens) == ((6,), [1, 2, 3, 4, 5])
    session.commit((6,))
    assert session.drafted is None


def test_a_finished_session_takes_no_draft_and_has_none() -> None:
    session = session_in(RUNNING)
    session.take_draft(a_draft(tokens=(9, 5)), 2.0)
    session.commit((9,))
    assert (session.phase, session.drafted) == (FINISHED, None)
    session.take_draft(a_draft(), 3.0)
    assert session.drafted is None


def test_who_lets_others_wait_is_waited_for_half_as_often_until_its_draft_is_there() -> None:
    session = session_in(RUNNING)
    for time, expected in ((1, 2 * LATE_ROUNDS), (2, 4 * LATE_ROUNDS), (3, 8 * LATE_ROUNDS)):
        session.waits = True
        session.go_without(5.0, 7)
        assert (session.waits, session.client.num_late, session.ready_since) == (False, time, 5.0)
        assert session.client.retry_round == 7 + expected
    session.take_draft(a_draft(complete=False), 6.0)
    assert session.client.num_late == 3, "more is to come"
    session.take_draft(a_draft(complete=True), 6.0)
    assert (session.client.num_late, session.client.retry_round) == (2, 0), "each complete draft forgives one"
