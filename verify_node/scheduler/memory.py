"""Keeps the pages of a round while it is filled: what its sessions take.

Sessions that would prefill the same pages as another one wait for that one (`followers`).
"""

from collections.abc import Mapping, Sequence

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from verify_node.session.drafted import NOTHING, Drafted
from verify_node.session.session import Session


class RoundMemory:
    """The pages that the sessions of a round will take."""

    def __init__(self, pool: PagePool, drafted: Mapping[bytes, Drafted]) -> None:
        """drafted: what each session has verified."""
        self.pool = pool
        self.drafted = drafted
        self.reserved = 0  # pages that the members will take
        self.members: set[bytes] = set()
        self.admitted: list[bytes] = []
        self.preempted: list[bytes] = []

    def find(self, session: Session) -> Hit | None:
        """Kept pages that a session without memory would begin with; None for one that has memory."""
        if session.session_id in self.pool:
            return None
        return self.pool.find(session.session_id, session.prefix_scope, session.tokens)

    def needed(self, session: Session, hit: Hit | None) -> int:
        """Free pages needed for its uncached tokens; shared cached pages cost none."""
        num_tokens = len(session.tokens) + len(self.drafted.get(session.session_id, NOTHING).tokens)
        needed = self.pool.pages_needed(session.session_id, num_tokens - self.pool.length(session.session_id))
        return needed if hit is None else needed - (len(hit.pages) - hit.num_unused)

    def reserve(self, session: Session, num_tokens: int, hit: Hit | None) -> bool:
        """Sets pages aside, if there are as many.

        A session without memory is admitted only when all that it has to be fed finds room: half a prompt would be
        thrown away again at the next shortage. It gets the kept pages that were found for it at once.
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
        """The session loses its pages; published ones are found again as long as nobody needs the room."""
        self.pool.free(session_id)
        self.preempted.append(session_id)


def followers(ready: Sequence[Session], pool: PagePool) -> dict[bytes, Session]:
    """Sessions without memory that would prefill the same pages as another one, their leader, by id.

    ready: in the order in which they are packed; sessions with memory go before all that have none. A follower waits
    only in rounds in which its leader is packed (`pack.py`).
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
