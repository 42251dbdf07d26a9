"""Sessions put by hand into a phase that they would reach through rounds."""

from goodspeed.wire.messages import Draft, Verdict
from verify_node.session.phase import Phase
from verify_node.session.session import Session


def put(session: Session, may_draft: int = 0, draft: Draft | None = None, *, waits: bool = False) -> None:
    """Puts a session where it is after a verdict that permits so many tokens, and perhaps its draft.

    waits: no round is to take it before its draft is complete.
    """
    session.phase, session.may_draft, session.waits = Phase.RUNNING, may_draft, waits
    session.last_verdict = Verdict(session.session_id, session.epoch, session.acked, (), 0, 0, may_draft)
    if draft is not None:
        session.take_draft(draft, session.ready_since)
