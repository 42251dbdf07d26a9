"""Sessions put by hand into a phase that they would reach through rounds."""

from typing import Any

from goodspeed.wire.messages import Draft
from verify_node.session.phase import Phase
from verify_node.session.session import Session


def put(session: Session, assigned: int, draft: Draft | None = None) -> None:
    """Puts a session where it is after a verdict with that length, and perhaps its draft."""
    session.assigned, session.draft, session.cannot_draft = assigned, draft, False
    session.phase = Phase.DRAFTED if draft else Phase.AWAITING if assigned else Phase.ADVANCING


def committed(*sessions: Any) -> list[Any]:
    """Puts sessions where they are within the end of a round: they moved, and are not told their next length yet."""
    for session in sessions:
        session.phase = Phase.COMMITTED
    return list(sessions)
