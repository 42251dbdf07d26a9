"""One session by itself, a draft for it, and its next verdict."""

from typing import Any

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, Verdict
from tests.fakes import make_open, replace_message, session_id
from verify_node.session.client import Client
from verify_node.session.session import Session


def make_session(**changes: Any) -> Session:
    """Session 1 of client a, whose prompt is (1, 2, 3) and which may have 20 tokens more."""
    opened = make_open(**changes)
    client = Client("a", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0))
    tokens = [*opened.prompt, *opened.committed]
    limit = len(opened.prompt) + opened.max_tokens
    return Session(opened, b"a", client, client.acceptance, tokens, admitted=1, acked=len(tokens), limit=limit)


def a_draft(session: Session | None = None, **changes: Any) -> Draft:
    """Two tokens, by default beyond the prompt of `make_session`."""
    base_len = 3 if session is None else len(session.tokens)
    return replace_message(Draft(session_id(1), 1, base_len, (4, 5)), **changes)


def tell(session: Session, now: float, *, may_draft: int = 8, waits: bool = False) -> None:
    """The verdict with its newest token goes out."""
    verdict = Verdict(session.session_id, 1, len(session.tokens) - 1, (7,), 0, 0, may_draft)
    session.permit(may_draft, 1)
    session.tell(verdict, now, waits=waits)
