"""Keeps the pages of a round while it is filled: what its sessions take, and who is preempted for it.

Sessions that would prefill the same pages as another one wait for that one (`followers`).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate, takewhile

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from verify_node.session.drafted import NOTHING, Drafted
from verify_node.session.session import Session


class RoundMemory:
    """Who has pages, and how many more the sessions of this round will take."""

    def __init__(
        self,
        pool: PagePool,
        drafted: Mapping[bytes, Drafted],
        resident: Iterable[Session],
        promised: Container[bytes],
        kept: Container[bytes],
    ) -> None:
        """drafted: what each session has verified. resident: those with memory. kept: whose memory is not taken."""
        self.pool = pool
        self.drafted = drafted
        self.resident = sorted(resident, key=lambda session: session.admitted)
        self.promised = promised
        self.kept = kept
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
        """Sets pages aside; an older session may take them from the youngest ones that are not in this round.

        A session without memory is admitted only when all that it has to be fed finds room: half a prompt would be
        thrown away again at the next shortage. It gets the kept pages that were found for it at once.
        """
        key = session.session_id
        needed = self.pool.pages_needed(key, num_tokens) if hit is None else self.needed(session, hit)
        victims = self._victims(session, needed - (self.pool.num_free - self.reserved), hit)
        if victims is None:
            return False
        if hit is not None:
            self.admitted.append(key)
        if hit is not None and hit.pages:
            self.pool.adopt(key, hit)  # before others leave, whose pages may push these out
            needed = self.needed(session, None)
        for victim in victims:
            self.preempt(victim)
        self.reserved += needed
        self.members.add(key)
        return True

    def preempt(self, victim: Session) -> None:
        """It loses its memory; what was published of its text is found again as long as nobody needs the room."""
        self.pool.free(victim.session_id)
        self.resident.remove(victim)
        self.preempted.append(victim.session_id)

    def _victims(self, session: Session, num_pages: int, hit: Hit | None) -> list[Session] | None:
        """The youngest sessions to preempt for so many pages; None when all that may be do not suffice.

        Promised sessions are never preempted, and all others may be for them. A page that a remaining session
        shares makes no room, and neither does one that was found for this session.
        """
        if num_pages <= 0:
            return []
        is_promised = session.session_id in self.promised
        may = [
            other
            for other in takewhile(lambda one: one.admitted > session.admitted or is_promised, reversed(self.resident))
            if other.session_id not in self.members and other.session_id not in self.kept
        ]
        leaving = [other.session_id for other in reversed(may)]  # the oldest first
        gone = set(leaving)
        stays = (key for key in self.pool if key not in gone)
        owned = self.pool.owned(leaving, others=stays, beside=hit.pages if hit is not None else ())
        for number, pages in enumerate(accumulate(reversed(owned)), 1):
            if pages >= num_pages:
                return may[:number]
        return None


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
