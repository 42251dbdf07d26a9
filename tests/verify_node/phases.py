"""Sessions by themselves, a draft and a verdict for one, and phases that they would reach through rounds, by hand."""

from typing import Any

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, OpenSession, Verdict
from tests.fakes import make_open, replace_message, session_id
from verify_node.clients.client import Client
from verify_node.session.phase import Phase
from verify_node.session.session import Session


def new_client(name: str = "a", **changes: Any) -> Client:
    return Client(name, AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0), **changes)


def new_session(opened: OpenSession, client=None, acceptance=None, *, admitted: int = 1) -> Session:
    """A session that was just opened; its acceptance rate is its client's unless another is given."""
    client = client or new_client()
    limit = len(opened.prompt) + opened.max_tokens
    return Session(opened, b"a", client, acceptance or client.acceptance, admitted, limit)


def put(session: Session, may_draft: int = 0, draft: Draft | None = None, *, waits: bool = False) -> None:
    """Puts a session where it is after a verdict that permits so many tokens, and perhaps its draft.

    waits: no round is to take it before its draft is complete.
    """
    session.phase, session.drafts.may_draft, session.drafts.waits = Phase.RUNNING, may_draft, waits
    session.last_verdict = Verdict(session.session_id, session.epoch, session.acked, (), 0, 0, may_draft)
    if draft is not None:
        session.take_draft(draft, session.ready_since)


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
    session.drafts.permit(may_draft, 1)
    session.tell(verdict, now, waits=waits, round_s=0.0)
