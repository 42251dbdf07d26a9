"""Reserves the pages of a round's sessions while the round is packed.

A session that would prefill the same pages as another waits for the other (`followers`).
"""

from collections.abc import Mapping, Sequence

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from verify_node.session.drafted import NOTHING, Drafted
from verify_node.session.session import Session


class RoundMemory:
    """The pages that a round's sessions will take."""

    def __init__(self, pool: PagePool, drafted: Mapping[bytes, Drafted]) -> None:
        """drafted: tokens to verify, by session."""
        self.pool = pool
        self.drafted = drafted
        self.reserved = 0  # pages that the members will take
        self.members: set[bytes] = set()
        self.admitted: list[bytes] = []
        self.preempted: list[bytes] = []

    def find(self, session: Session) -> Hit | None:
        """Returns cached pages that a session without memory can start from; None for a session with memory."""
        if session.session_id in self.pool:
            return None
        return self.pool.find(session.session_id, session.prefix_scope, session.tokens)

    def needed(self, session: Session, hit: Hit | None) -> int:
        """Returns the free pages needed for its uncached tokens; shared cached pages need none."""
        num_tokens = len(session.tokens) + len(self.drafted.get(session.session_id, NOTHING).tokens)
        needed = self.pool.pages_needed(session.session_id, num_tokens - self.pool.length(session.session_id))
        return needed if hit is None else needed - (len(hit.pages) - hit.num_unused)

    def reserve(self, session: Session, num_tokens: int, hit: Hit | None) -> bool:
        """Reserves pages; returns False if too few are free.

        A session without memory is admitted only if all of its uncached tokens fit: half a prompt would be evicted at
        the next shortage. It adopts the cached pages of `hit` at once.
        """
        key = session.session_id
        needed = self.pool.pages_needed(key, num_tokens) if hit is None else self.needed(session, hit)
        if needed > self.pool.num_free - self.reserved:
            return False
        if hit is not None:
            self.admitted.append(key)
        if hit is not None and hit.pages:
            self.pool.adopt(key, hit)
            needed = self.needed(session, None)
        self.reserved += needed
        self.members.add(key)
        return True

    def preempt(self, session_id: bytes) -> None:
        """Frees the session's pages; published ones remain in the prefix cache until their room is needed."""
        self.pool.free(session_id)
        self.preempted.append(session_id)


def followers(ready: Sequence[Session], pool: PagePool) -> dict[bytes, Session]:
    """Returns the sessions without memory that would prefill the same pages as another, with that leader, by id.

    ready: in packing order; sessions with memory take precedence as leaders. A follower waits only in rounds in which
    its leader is packed (`pack.py`).
    """
    if not pool.has_prefix_cache:
        return {}
    found: dict[bytes, Session] = {}
    readers: dict[bytes, Session] = {}  # by the pages that they prefill next
    for session in sorted(ready, key=lambda one: one.session_id not in pool):
        upcoming = pool.upcoming(session.session_id, session.prefix_scope, session.tokens)
        if upcoming is None:
            continue
        reader = readers.setdefault(upcoming, session)
        if reader is not session and session.session_id not in pool:
            found[session.session_id] = reader
    return found
