"""What bounds how many tokens a session may have drafted, whatever the policy gives: its key, and what a wait costs."""

from collections import defaultdict
from collections.abc import Sequence

from verify_node.session.client import Client
from verify_node.session.session import Session

FIRST_LENGTH = 4
"""Longest draft that is waited for as long as nobody knows how long one takes."""


def room(sessions: Sequence[Session], number: int = 0) -> dict[bytes, int]:
    """Most drafted tokens of each session whose client has a limit, so that all of the client's together keep to it.

    Its sessions share the limit; the remainder goes to others of them in each verify round `number`.
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
        own = sharing[name]
        rooms |= {one.session_id: each + ((place + number) % len(own) < left) for place, one in enumerate(own)}
    return rooms


def quickest(session: Session, most: int, round_s: float) -> int:
    """Length, at most `most`, with which the text of a session that waits for its drafts grows fastest; 0: without any.

    A draft costs its session the way there and back and the time of its tokens. How long these take is known from what
    the client's draft model drafted before; it begins with a few.
    """
    client = session.client
    if not client.answer_s:
        return min(most, FIRST_LENGTH)
    alpha = session.acceptance.value
    token_s = max(0.0, client.answer_s - session.round_trip_s) / (client.delivered + 1.0)
    tokens, seconds = 1.0, round_s + session.round_trip_s + token_s
    best, fastest = 0, tokens / seconds
    for length in range(1, most + 1):
        tokens += alpha**length
        seconds += token_s
        if tokens / seconds <= fastest:  # each token brings less than the one before: the pace falls from here on
            break
        best, fastest = length, tokens / seconds
    return best if not round_s or fastest > 1.0 / round_s else 0
