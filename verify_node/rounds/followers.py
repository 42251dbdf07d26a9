"""Who waits for a round or more because another session reads the same text: then it is read once for both.

The choices of one request come as sessions with the same prompt at nearly the same time. The first of them reads it,
and the others adopt its pages when they are published. Knows nothing about limits and memory.
"""

from collections.abc import Iterable

from goodspeed.engine.paged.pages import PagePool
from verify_node.session.session import Session

WORTH_WAITING = 2
"""Pages that have to be left to read, since a wait costs a round; fewer are read by each."""


def followers(ready: Iterable[Session], pool: PagePool) -> dict[bytes, bytes]:
    """The sessions without memory that would read what another is about to read, by id, with the id of that one.

    ready: in the order in which they are packed. Only who shares with a session can hold it up, and only in rounds in
    which the other reads on.
    """
    found: dict[bytes, bytes] = {}
    if not pool.keeps_prefixes:
        return found
    readers: dict[bytes, bytes] = {}  # by the digest of the second page that they have to read
    for session in ready:
        key = session.session_id
        if len(session.tokens) - pool.length(key) <= WORTH_WAITING * pool.page_size:
            continue
        first = pool.length(key)
        if key not in pool:
            first = pool.find(key, session.prefix_scope, session.tokens).num_tokens
        digests = pool.digests(key, session.prefix_scope, session.tokens)
        place = first // pool.page_size + WORTH_WAITING - 1
        if place >= len(digests):
            continue
        reader = readers.setdefault(digests[place], key)
        if reader != key and key not in pool:
            found[key] = reader
    return found
