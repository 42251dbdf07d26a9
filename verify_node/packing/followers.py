"""Who waits for a round or more because another session reads the same text: then it is read once for both.

The choices of one request come as sessions with the same prompt at nearly the same time. The first of them reads it,
and the others adopt its pages when they are published. Knows nothing about limits.
"""

from collections.abc import Sequence

from goodspeed.engine.paged.pages import PagePool
from verify_node.session.session import Session


def followers(ready: Sequence[Session], pool: PagePool) -> dict[bytes, Session]:
    """The sessions without memory that would read what another is about to read, by id, with the other one.

    ready: in the order in which they are packed. Who has memory goes on reading, before all that have none. Only who
    shares with a session can hold it up, and only in rounds in which the other reads on: one that finds no memory, or
    has no tokens left to it, holds nobody up (`packing.py`).
    """
    if not pool.has_prefix_cache:
        return {}
    found: dict[bytes, Session] = {}
    readers: dict[bytes, Session] = {}  # by what they read next
    for session in sorted(ready, key=lambda one: one.session_id not in pool):
        upcoming = pool.upcoming(session.session_id, session.prefix_scope, session.tokens)
        if upcoming is None:
            continue
        reader = readers.setdefault(upcoming, session)
        if reader is not session and session.session_id not in pool:
            found[session.session_id] = reader
    return found
