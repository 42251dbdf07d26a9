"""Fills the next forward pass: plan(number, sessions, ready, limits, pool, drafted, resolve, allotment, room) -> Round.

Promised sessions go first, then those with a floor, then the longest wait; clients take turns in prefill. Where pages
are short, `resolve` (`preempt.py`) decides which sessions are preempted. A session that would prefill the same pages as
another waits for the other (`followers`).
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.prefix_cache import Hit
from verify_node.scheduler.preempt import Shortage
from verify_node.scheduler.prefill import UNBOUNDED, Room
from verify_node.scheduler.round import Entry, Round, RoundLimits, make_chunk, make_entry
from verify_node.session.draft_tokens import NOTHING, DraftTokens
from verify_node.session.session import Session
from verify_node.slo.allotting import NO_PROMISES, Allotment

MAX_PROMPT_ROWS = 256
"""Most rows of logits for prompts in one round: 156 MB with a vocabulary of 152,000."""

Resolve: TypeAlias = Callable[[Iterable[Session], Sequence[Session], Mapping[bytes, int], Container[bytes]], Shortage]
"""Decides which sessions are preempted, and which wait for pages. Arguments: sessions with pages, ready sessions, the
additional pages that each ready session needs, and promised sessions."""


def plan(
    number: int,
    sessions: Iterable[Session],
    ready: Sequence[Session],
    limits: RoundLimits,
    pool: PagePool,
    drafted: Mapping[bytes, DraftTokens],
    resolve: Resolve,
    allotment: Allotment = NO_PROMISES,
    room: Room = UNBOUNDED,
) -> Round:
    """Packs the ready sessions into one round within the budget, the token limit and the free pages.

    drafted: tokens to verify, by session. resolve: chooses preempted sessions where pages are short; their pages are
    freed in `pool` at once. allotment: the promised sessions' part; promised sessions go first, and are never
    preempted. room: bounds the prefill of the others by its time.
    """
    asked = {session.session_id for session in ready}
    allotment = allotment._replace(floor={key: most for key, most in allotment.floor.items() if key in asked})
    packing = _Packing(limits, pool, drafted, allotment, room)
    ready = in_turns(sorted(ready, key=packing.turn), pool, packing.promised, number)
    packing.follow(ready)
    resident = [session for session in sessions if session.session_id in pool]
    packing.make_room(ready, sorted(resident, key=lambda session: session.admitted), resolve)
    for session in ready:
        packing.add(session)
    planned = packing.round(number)
    prefilled = {entry.session_id: entry for entry in planned.entries if entry.num_prefill}
    for session in ready:
        if (entry := prefilled.get(session.session_id)) is not None:
            session.client.note_prefill(number, room.cost_of(entry))
    return planned


def in_turns(ready: Sequence[Session], pool: PagePool, promised: Container[bytes], number: int) -> list[Session]:
    """Reorders the sessions that prefill, so that clients take turns; all other sessions keep their positions.

    A client's second text comes behind every client's first. Among these, clients that recently prefilled less by their
    weights come first. Of a client's texts, the one with least to prefill comes first in every second round: a short
    prompt does not wait for a long one's end, and a long one gets half of the rounds. ready: in the order of their
    waits. promised: sessions that take no turns. number: of the round.
    """
    left = {one.session_id: len(one.tokens) - pool.length(one.session_id) for one in ready}
    prefilling = [one for one in ready if one.session_id not in promised and left[one.session_id] > 1]
    if not prefilling:
        return list(ready)
    num_texts: Counter[str] = Counter()
    turns: dict[bytes, tuple[int, float]] = {}
    for session in sorted(prefilling, key=lambda one: left[one.session_id]) if number % 2 else prefilling:
        turns[session.session_id] = num_texts[session.client.name], session.client.prefilled_by(number)
        num_texts[session.client.name] += 1
    following = iter(sorted(prefilling, key=lambda session: turns[session.session_id]))
    return [next(following) if session.session_id in turns else session for session in ready]


class RoundPages:
    """The pages that a round's sessions will take."""

    def __init__(self, pool: PagePool, drafted: Mapping[bytes, DraftTokens]) -> None:
        """drafted: tokens to verify, by session."""
        self.pool = pool
        self.drafted = drafted
        self.reserved = 0  # pages that the members will take
        self.members: set[bytes] = set()
        self.admitted: list[bytes] = []
        self.preempted: list[bytes] = []
        self._found: dict[bytes, Hit] = {}  # by session, until the pool changes

    def find(self, session: Session) -> Hit | None:
        """Returns cached pages that a session without pages can start from; None for a session with pages."""
        key = session.session_id
        if key in self.pool:
            return None
        if (hit := self._found.get(key)) is None:
            hit = self._found[key] = self.pool.find(key, session.prefix_scope, session.tokens)
        return hit

    def needed(self, session: Session, hit: Hit | None) -> int:
        """Returns the free pages needed for its uncached tokens; shared cached pages need none."""
        num_tokens = len(session.tokens) + len(self.drafted.get(session.session_id, NOTHING).tokens)
        needed = self.pool.pages_needed(session.session_id, num_tokens - self.pool.length(session.session_id))
        return needed if hit is None else needed - (len(hit.pages) - hit.num_unused)

    def reserve(self, session: Session, num_tokens: int, hit: Hit | None) -> bool:
        """Reserves pages; returns False if too few are free.

        A session without pages is admitted only if all of its uncached tokens fit: half a prompt would be evicted at
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
            self._found.clear()
            needed = self.needed(session, None)
        self.reserved += needed
        self.members.add(key)
        return True

    def preempt(self, session_id: bytes) -> None:
        """Frees the session's pages; published ones remain in the prefix cache until their room is needed."""
        self.pool.free(session_id)
        self._found.clear()
        self.preempted.append(session_id)


def followers(ready: Sequence[Session], pool: PagePool) -> dict[bytes, Session]:
    """Returns the sessions without pages that would prefill the same pages as another, with that leader, by id.

    ready: in packing order; sessions with pages take precedence as leaders. A follower waits only in rounds in which
    its leader is packed.
    """
    if not pool.has_prefix_cache:
        return {}
    found: dict[bytes, Session] = {}
    leaders: dict[bytes, Session] = {}  # by the pages that they prefill next
    prefilling = [
        (one, upcoming)
        for one in ready
        if (upcoming := pool.upcoming(one.session_id, one.prefix_scope, one.tokens)) is not None
    ]
    for session, upcoming in sorted(prefilling, key=lambda each: each[0].session_id not in pool):
        leader = leaders.setdefault(upcoming, session)
        if leader is not session and session.session_id not in pool:
            found[session.session_id] = leader
    return found


class _Packing:
    """A round while it is being packed."""

    def __init__(
        self,
        limits: RoundLimits,
        pool: PagePool,
        drafted: Mapping[bytes, DraftTokens],
        allotment: Allotment,
        room: Room,
    ) -> None:
        self.allotment = allotment
        self.room, self.left = room, room.rows
        self.promised = {session_id: place for place, session_id in enumerate(allotment.rank)}
        self.pages = RoundPages(pool, drafted)
        self.budget = limits.budget
        self.tokens = limits.max_round_tokens
        if allotment.round_tokens is not None:
            self.tokens = min(self.tokens, max(1, allotment.round_tokens))
        self.kept_free = sum(allotment.floor.values())  # of these, reserved for sessions with a floor not added yet
        self.prefill = limits.most_prefill
        self.prompt_rows = MAX_PROMPT_ROWS
        self.pool = pool
        self.drafted = drafted
        self.entries: list[Entry] = []
        self.deferred: list[bytes] = []
        self.crowded_out: list[bytes] = []
        self.without_pages: frozenset[Hashable] = frozenset()  # ready sessions that wait, once `make_room` has decided
        self.followed: Mapping[bytes, Session] = {}  # by follower: the leader that prefills its pages
        self.seen: set[bytes] = set()  # sessions already packed or deferred

    def turn(self, session: Session) -> tuple[float, bool, float, int]:
        """Sort key: promised sessions by due time, then sessions with a floor, then the longest wait."""
        key = session.session_id
        return self.promised.get(key, inf), key not in self.allotment.floor, session.ready_since, session.admitted

    def follow(self, ready: Sequence[Session]) -> None:
        """Determines the followers; promised sessions follow no other."""
        self.followed = followers([session for session in ready if session.session_id not in self.promised], self.pool)

    def make_room(self, ready: Sequence[Session], resident: Sequence[Session], resolve: Resolve) -> None:
        """Makes room for the ready sessions; if not all fit, `resolve` decides which do, and the others wait.

        Followers are skipped unless their leader is not admitted; then they compete normally, and the first one
        admitted becomes leader.
        """
        num_followers = len(self.followed)
        while True:
            shortage = self._shortage(ready, resident, resolve)
            out = {*shortage.wait, *shortage.preempt}
            held_up = {key for key, leader in self.followed.items() if leader.session_id in out}
            if not held_up:
                break
            self.followed = {key: leader for key, leader in self.followed.items() if key not in held_up}
        self.without_pages = shortage.wait
        for session in resident:
            if session.session_id in shortage.preempt:
                self.pages.preempt(session.session_id)
        if len(self.followed) < num_followers:
            self.follow([session for session in ready if session.session_id not in out])

    def _shortage(self, ready: Sequence[Session], resident: Sequence[Session], resolve: Resolve) -> Shortage:
        asked = [session for session in ready if session.session_id not in self.followed]
        most = self.tokens // self.pool.page_size + len(asked)  # pages that sessions with pages can take in a round
        if self.pool.num_free >= most and all(session.session_id in self.pool for session in asked):
            return Shortage()
        needs = {session.session_id: self.pages.needed(session, self.pages.find(session)) for session in asked}
        if sum(needs.values()) <= self.pool.num_free:
            return Shortage()
        return resolve(resident, asked, needs, self.allotment.reserved)

    def add(self, session: Session) -> None:
        """Packs the session, or defers it. A leader is packed before its followers."""
        key = session.session_id
        if key in self.seen:
            return
        self.seen.add(key)
        self.kept_free -= self.allotment.floor.get(key, 0)
        if key in self.followed and self._waits_for(self.followed[key]):
            self.deferred.append(key)
            return
        if key in self.without_pages:
            self.deferred.append(key)
            self.crowded_out.append(key)
            return
        hit = self.pages.find(session)
        entry = self._entry(session, hit)
        if entry is None or key in self.pages.preempted or not self.pages.reserve(session, len(entry.tokens), hit):
            self.deferred.append(key)
            if entry is not None:
                self.crowded_out.append(key)
            return
        self.entries.append(entry)
        self.budget -= entry.num_drafted
        self.tokens -= len(entry.tokens)
        self.prompt_rows -= len(entry.prompt_rows.tokens) if entry.prompt_rows is not None else 0
        if prefill := entry.num_prefill:
            self.left -= self.room.cost_of(entry)
            self.prefill -= prefill if key not in self.promised else 0

    def _waits_for(self, leader: Session) -> bool:
        """True if this leader prefills the same pages in this round."""
        self.add(leader)
        return leader.session_id in self.pages.members

    def _entry(self, session: Session, hit: Hit | None) -> Entry | None:
        """Returns the session's tokens for this round: all of them, or else a chunk before its newest token."""
        cached = self.pool.length(session.session_id) if hit is None else hit.num_tokens
        prefill = len(session.tokens) - cached - 1  # at least 0: the newest token was never fed
        drafted = self.drafted.get(session.session_id, NOTHING)
        if session.session_id in self.promised:
            return self._promised_entry(session, cached, prefill, drafted)
        most, room = self._most_prefill(session, cached) if prefill else 0, self.tokens - self.kept_free
        for draft in (drafted, NOTHING) if session.session_id in self.allotment.floor else (drafted,):
            num_drafted = len(draft.tokens)
            if prefill <= most and num_drafted <= self.budget and prefill + 1 + num_drafted <= room:
                return make_entry(session, cached, draft)
        num_tokens = min(prefill, most, room)
        return make_chunk(session, cached, num_tokens) if num_tokens > 0 else None

    def _promised_entry(self, session: Session, cached: int, prefill: int, drafted: DraftTokens) -> Entry | None:
        """Returns the allotted tokens of a promised prompt; for other promised sessions, one token and their draft.

        A draft that does not fit is dropped: a promised session does not wait for the next round because of its draft.
        """
        allotted, left = self.allotment.prefill.get(session.session_id, prefill + 1), self.tokens - self.kept_free
        num_tokens = min(allotted, left, self._prompt_rows(session) + 1)
        if session.session_id in self.allotment.held:  # the allotment may count tokens that are cached
            num_tokens = min(num_tokens, prefill)
        if num_tokens <= prefill:
            return make_chunk(session, cached, num_tokens) if num_tokens > 0 else None
        room = min(self.budget, left - num_tokens)
        return make_entry(session, cached, drafted if len(drafted.tokens) <= room else NOTHING)

    def _most_prefill(self, session: Session, cached: int) -> int:
        """Most tokens before its newest one that may be prefilled; at least its floor, and one if nobody else's are."""
        most = int(min(self.prefill, self.room.most(self.left, cached)))
        least = 1 if self.left == self.room.rows > 0 else 0
        least = max(least, self.allotment.floor.get(session.session_id, 0))
        return min(max(most, least), self.prefill, self._prompt_rows(session))

    def _prompt_rows(self, session: Session) -> int:
        """Most tokens before its newest one that may be prefilled: limited only if each needs a row of logits."""
        return self.prompt_rows if session.lacks_prompt_logprobs else len(session.tokens)

    def round(self, number: int) -> Round:
        return Round(
            number=number,
            entries=tuple(self.entries),
            admitted=tuple(self.pages.admitted),
            deferred=tuple(self.deferred),
            crowded_out=tuple(self.crowded_out),
            preempted=tuple(self.pages.preempted),
            room_left=self.left,
        )
