"""Sessions in any phase, whose text is partly in a pool, with drafts of a given length."""

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, digest
from tests.fakes import make_open
from tests.verify_node.phases import put
from verify_node.session.client import Client
from verify_node.session.session import Session


def make_session(number, *, prompt=3, cached=None, draft=None, assigned=None, ready_since=0.0, pool=None):
    """Session `number`, the number-th to be opened; `draft` is a length."""
    opened = make_open(number, prompt=tuple(range(1, prompt + 1)))
    client = Client("a", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0))
    session = Session(opened, b"a", client, client.acceptance, list(opened.prompt), number, prompt, prompt + 20)
    session.ready_since = ready_since
    if assigned is not None:
        put(session, assigned)
    if cached is not None:
        pool.extend(session.session_id, cached)
    if draft is not None:
        put(session, max(draft, 1), Draft(session.session_id, 1, 7, prompt, digest(session.tokens), (1,) * draft))
    return session
