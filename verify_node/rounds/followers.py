"""Who waits for a round or more because another session reads the same text: then it is read once for both.

The choices of one request come as sessions with the same prompt at nearly the same time. The first of them reads it,
and the others adopt its pages when they are published. Knows nothing about limits.
"""

from collections.abc import Iterable

from goodspeed.engine.paged.pages import PagePool
from verify_node.session.session import Session


def followers(ready: Iterable[Session], pool: PagePool) -> dict[bytes, bytes]:
    """The sessions without memory that would read what another is about to read, by id, with the id of that one.

    ready: in the order in which they are packed. Only who shares with a session can hold it up, and only in rounds in
    which the other reads on.
    """
    found: dict[bytes, bytes] = {}
    readers: dict[bytes, bytes] = {}  # by what they read next
    for session in ready:
        key = session.session_id
        upcoming = pool.upcoming(key, session.prefix_scope, session.tokens)
        if upcoming is None:
            continue
        reader = readers.setdefault(upcoming, key)
        if reader != key and key not in pool:
            found[key] = reader
    return found
