"""How long drafts may be, where a client's key limits what it drafts in one round. Knows nothing about policies."""

from collections import defaultdict
from collections.abc import Sequence

from verify_node.session.client import Client
from verify_node.session.session import Session


def room(sessions: Sequence[Session], participants: Sequence[Session]) -> dict[bytes, int]:
    """Longest draft of each participant whose client has a limit, so that all of that client's together keep to it.

    Others of its sessions keep what they were assigned before; the participants share the rest, the first of them the
    remainder. Any round takes some of these drafts, so it never has more of them than the limit.
    """
    if all(session.client.max_round_tokens is None for session in participants):
        return {}
    told = {session.session_id for session in participants}
    held: dict[str, int] = defaultdict(int)
    for session in sessions:
        if session.session_id not in told:
            held[session.client.name] += session.assigned or 0
    sharing: dict[str, list[Session]] = defaultdict(list)
    clients: dict[str, Client] = {}
    for session in participants:
        sharing[session.client.name].append(session)
        clients[session.client.name] = session.client
    rooms: dict[bytes, int] = {}
    for name, client in clients.items():
        if client.max_round_tokens is not None:
            each, left = divmod(max(0, client.max_round_tokens - held[name]), len(sharing[name]))
            rooms |= {session.session_id: each + (place < left) for place, session in enumerate(sharing[name])}
    return rooms
