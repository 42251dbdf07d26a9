"""What bounds how many tokens a session may have drafted, whatever the policy gives: its key, and what a wait costs."""

from collections import defaultdict
from collections.abc import Sequence

from verify_node.session.client import Client
from verify_node.session.session import Session

FIRST_LENGTH = 4
"""Longest draft that is waited for as long as nobody knows how long one takes."""


def room(sessions: Sequence[Session]) -> dict[bytes, int]:
    """Most drafted tokens of each session whose client has a limit, so that all of the client's together keep to it.

    Its sessions share the limit, the first of them the remainder.
    """
    sharing: dict[str, list[Session]] = defaultdict(list)
    clients: dict[str, Client] = {}
    for session in sessions:
        if session.client.max_round_tokens is not None:
            sharing[session.client.name].append(session)
            clients[session.client.name] = session.client
    rooms: dict[bytes, int] = {}
    for name, client in clients.items():
        each, left = divmod(client.max_round_tokens or 0, len(sharing[name]))
        rooms |= {session.session_id: each + (place < left) for place, session in enumerate(sharing[name])}
    return rooms


def quickest(session: Session, most: int, round_s: float) -> int:
    """Length, at most `most`, with which the text of a session that waits for its drafts grows fastest; 0: without any.

    A draft costs its session the way there and back and the time of its tokens. How long these take is known from what
    the client's draft model drafted before; it begins with a few.
    """
    client = session.client
    if not client.answer_s:
        return min(most, FIRST_LENGTH)
    alpha, token_s = (
        session.acceptance.value,
        max(0.0, client.answer_s - session.round_trip_s) / (client.delivered + 1.0),
    )
    tokens, best, fastest = 1.0, 0, 1.0 / round_s if round_s else 0.0
    for length in range(1, most + 1):
        tokens += alpha**length
        pace = tokens / (round_s + session.round_trip_s + token_s * (length + 1))
        if pace > fastest:
            best, fastest = length, pace
    return best
