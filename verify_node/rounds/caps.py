"""How long drafts may be, where a client's key limits what it drafts in one round. Knows nothing about policies."""

from collections import defaultdict
from collections.abc import Sequence

from verify_node.session.client import Client
from verify_node.session.session import Session


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
