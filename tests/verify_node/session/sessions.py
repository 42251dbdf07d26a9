"""One session by itself, a draft for it, and its next verdict."""

from typing import Any

from goodspeed.wire.messages import Draft, Verdict
from tests.fakes import make_open, replace_message, session_id
from tests.verify_node.phases import new_session
from verify_node.session.session import Session


def make_session(**changes: Any) -> Session:
    """Session 1 of client a, whose prompt is (1, 2, 3) and which may have 20 tokens more."""
    return new_session(make_open(**changes))


def a_draft(session: Session | None = None, **changes: Any) -> Draft:
    """Two tokens, by default beyond the prompt of `make_session`."""
    base_len = 3 if session is None else len(session.tokens)
    return replace_message(Draft(session_id(1), 1, base_len, (4, 5)), **changes)


def tell(session: Session, now: float, *, may_draft: int = 8, waits: bool = False) -> None:
    """The verdict with its newest token goes out."""
    verdict = Verdict(session.session_id, 1, len(session.tokens) - 1, (7,), 0, 0, may_draft)
    session.permit(may_draft, 1)
    session.tell(verdict, now, waits=waits, round_s=0.0)
