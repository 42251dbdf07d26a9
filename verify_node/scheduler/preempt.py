"""Decides, by an `Order`, which best-effort sessions keep their KV pages when a round needs more pages than are free.

Promised sessions get the pages that they need. Next come the sessions with pages, the best first: one that needs more
pages preempts those behind it, the worst first. Then come the sessions without pages, as the order ranks them: each
takes free pages, and the first that finds too few also those of sessions that yield (`yields`), the worst-ranked first.
A session that finds too few pages waits, and the next may fit.

Progress is guaranteed. A session is admitted only with room for all of its uncached tokens, and its prefill then
precedes all sessions admitted later. No session yields to a waiter before S_1 of deciding in its turn. While no round
decides a token, rankings stop changing in the end, so the best session with pages runs to its end.

No session starves. A session that has waited for AGING_S goes first among the waiters; if it finds no room, no session
behind it is admitted. Once admitted it is preempted last until it has had S_1. With first come, first served a wait
counts from a session's arrival, and no claims are needed: older texts never lose pages to younger ones. A session that
only its draft node can move yields to all others after GONE_S, whatever the order.
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import NamedTuple

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.round_time import CostModel
from verify_node.scheduler.attained_service import Accounts, Claim
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.orders import AGING_S, Job, Order
from verify_node.scheduler.round import Round
from verify_node.session.draft_tokens import NOTHING, DraftTokens
from verify_node.session.session import Session
from verify_node.slo.promises import GONE_S

_arrival = attrgetter("arrived_at", "admitted")


class Shortage(NamedTuple):
    """The sessions affected by a shortage of pages."""

    preempt: tuple[Hashable, ...] = ()  # sessions that lose their pages, in this order
    wait: frozenset[Hashable] = frozenset()  # sessions that could move, but find no pages


class Contention:
    """KV pages while they are shared out among the best-ranked sessions. Sizes are in pages."""

    def __init__(
        self,
        order: Order,
        jobs: Sequence[Job],
        now: float,
        *,
        num_free: int,
        owned: Mapping[Hashable, int],
        needs: Mapping[Hashable, int],
        claims: Mapping[Hashable, Claim],
        num_promised: int = 0,
        stuck: Container[Hashable] = (),
    ) -> None:
        """jobs: best-effort sessions that have or want pages. num_free: free pages.

        owned: pages of each session that has some. needs: additional pages that each session needs to move in this
        round, without sessions that no round can move. claims: of sessions with pages, unless jobs rank by arrival.
        num_promised: additional pages that promised sessions need. stuck: sessions with pages that yield to all others.
        """
        ranked = order.rank(jobs, now)
        self.order = order
        self.now = now
        self.owned = dict(owned)  # by holder, including pages given here
        self.needs = needs
        self.waiters = [job for job in ranked if not job.has_place and job.job_id in needs]
        self.holders = [job for job in ranked if job.has_place]
        if not order.by_arrival:  # else the first-ranked job needs no claim to make progress
            self.holders.sort(key=lambda job: claims[job.job_id])
        self.holders.sort(key=lambda job: job.job_id in stuck)
        self.stuck = stuck
        self.num_stuck = sum(job.job_id in stuck for job in self.holders)  # at the end of `holders`
        self.num_free = num_free - num_promised  # negative while promised sessions lack pages
        self.num_held = sum(owned[job.job_id] for job in self.holders)
        self.num_pages = self.num_free + self.num_held  # all pages for best effort
        self.preempt: list[Hashable] = []
        self.wait: set[Hashable] = set()

    def resolve(self) -> Shortage:
        """Returns the sessions to preempt, and those that wait."""
        self.serve_promised()
        self.serve_holders()
        self.admit()
        return Shortage(tuple(self.preempt), frozenset(self.wait))

    def serve_promised(self) -> None:
        """Preempts holders for promised sessions, the worst first, until their need is met."""
        while self.num_free < 0 and self.holders:
            self._take(self.holders.pop())

    def serve_holders(self) -> None:
        """Gives each holder the pages that it needs from those behind it; otherwise it waits with its own pages."""
        place = num_before = 0  # num_before: pages of the holders before `place`
        while place < len(self.holders):
            job_id = self.holders[place].job_id
            place, num_before = place + 1, num_before + self.owned[job_id]
            if (need := self.needs.get(job_id)) is None:
                continue
            if need > self.num_free + self.num_held - num_before:
                self.wait.add(job_id)
                continue
            while need > self.num_free:
                self._take(self.holders.pop())
            self.num_free -= need
            self.num_held += need
            self.owned[job_id] += need
            num_before += need

    def admit(self) -> None:
        """Admits waiters. Only the first that finds too few pages may displace others: a round prefills half of its
        tokens at most, and to ask all holders for each waiter would take long."""
        displaces = self.order.displaces
        for place, job in enumerate(self.waiters):
            need = self.needs[job.job_id]
            self._displace_stuck(need)
            if displaces and self.num_free < need <= self.num_free + self.num_held:
                self._displace(self._who_yield(job, need))
                displaces = False
            if need <= self.num_free:
                self.num_free -= need
                continue
            self.wait.add(job.job_id)
            if job.is_overdue(self.now, AGING_S) and need <= self.num_pages:
                self.wait.update(behind.job_id for behind in self.waiters[place:])
                return

    def _who_yield(self, waiter: Job, need: int) -> list[Job]:
        """Returns holders to displace, as many as needed, the worst first; none if too few pages would be freed."""
        missing = need - self.num_free
        victims: list[Job] = []
        for holder in reversed(self.holders):
            if missing <= 0:
                break
            if self.order.yields(holder, waiter, self.now):
                victims.append(holder)
                missing -= self.owned[holder.job_id]
        return victims if missing <= 0 else []

    def _displace_stuck(self, need: int) -> None:
        """Preempts stuck holders for a waiter, if that frees enough."""
        stuck = self.holders[len(self.holders) - self.num_stuck :]
        if need <= self.num_free + sum(self.owned[job.job_id] for job in stuck):
            while need > self.num_free:
                self._take(self.holders.pop())

    def _displace(self, victims: Sequence[Job]) -> None:
        gone = {victim.job_id for victim in victims}
        self.holders = [job for job in self.holders if job.job_id not in gone]
        for victim in victims:
            self._take(victim)

    def _take(self, victim: Job) -> None:
        self.num_stuck -= victim.job_id in self.stuck
        num_pages = self.owned[victim.job_id]
        self.num_free += num_pages
        self.num_held -= num_pages
        self.preempt.append(victim.job_id)
        self.wait.discard(victim.job_id)


def _is_stuck(session: Session, now: float) -> bool:
    return now - session.moved_at > GONE_S and not session.awaits_draft  # that wait has an end of its own


class Preemption:
    """Applies the order when KV pages are short; accounts for each text's service if the order uses that."""

    def __init__(self, order: Order, cost: CostModel, pool: PagePool) -> None:
        """cost: the round time model, which gives the cost of prefilling a text again."""
        self.accounts = None if order.by_arrival else Accounts()
        self._order = order
        self._cost = cost
        self._pool = pool

    def resolve(
        self,
        resident: Iterable[Session],
        ready: Sequence[Session],
        needs: Mapping[bytes, int],
        kept: Container[bytes],
        *,
        now: float,
        others: Iterable[Session] = (),
    ) -> Shortage:
        """Returns the sessions to preempt before the round, and those that wait for pages.

        resident: sessions with pages. needs: additional pages that each ready session needs. kept: promised sessions.
        others: ready sessions that this round leaves out; they are ranked because they wait, too. A shared page counts
        for its oldest session, and for none if a promised session has it.
        """
        accounts, resident = self.accounts, list(resident)
        holders = [session for session in resident if session.session_id not in kept]
        waiting = {session.session_id: session for session in (*ready, *others)}
        waiters = [one for one in waiting.values() if one.session_id not in self._pool and one.session_id not in kept]
        contending = sorted([*holders, *waiters], key=lambda session: session.admitted)
        keys = [session.session_id for session in contending if session.session_id in self._pool]
        promised = [session.session_id for session in resident if session.session_id in kept]
        found = [  # pages that promised sessions without pages will have: preempting others does not free them
            page
            for one in ready
            if one.session_id in kept and one.session_id not in self._pool
            for page in self._pool.find(one.session_id, one.prefix_scope, one.tokens).pages
        ]
        contention = Contention(
            self._order,
            [self._job(session) for session in contending],
            now,
            num_free=self._pool.num_free,
            owned=dict(zip(keys, self._pool.owned(keys, others=promised, beside=found), strict=True)),
            needs={key: pages for key, pages in needs.items() if key not in kept},
            claims={} if accounts is None else {one.session_id: accounts.of(one).claim for one in holders},
            num_promised=sum(pages for key, pages in needs.items() if key in kept),
            stuck={one.session_id for one in holders if one.session_id not in waiting and _is_stuck(one, now)},
        )
        return contention.resolve()

    def in_vain(
        self,
        sessions: Iterable[Session],
        ready: Sequence[Session],
        drafted: Mapping[bytes, DraftTokens],
        kept: frozenset[bytes],
        now: float,
    ) -> frozenset[bytes]:
        """Returns ready sessions without pages that `resolve` would let wait, at a fraction of its cost.

        So prompts that wait cost a round little, however many they are, but for those that have waited for AGING_S
        beside promised sessions. Returns none where the order needs all jobs to rank them, nor where sessions may lose
        pages in this round, because waiters may take what is left of these.

        sessions: the open ones. drafted: tokens to verify, by session. kept: promised sessions.
        """
        pool = self._pool
        waiters = [one for one in ready if one.session_id not in pool]
        if not waiters or self.accounts is not None or any(one.session_id in kept for one in waiters):
            return frozenset()
        resident = [one for one in sessions if one.session_id in pool]
        moving, scopes = {one.session_id for one in ready}, {one.prefix_scope for one in resident}
        num_free, num_stuck = pool.num_free, 0
        for one in resident:
            key = one.session_id
            if key in moving:
                num_tokens = len(one.tokens) + len(drafted.get(key, NOTHING).tokens)
                num_free -= pool.pages_needed(key, num_tokens - pool.length(key))
            elif key not in kept and _is_stuck(one, now):
                num_stuck += len(pool.table(key))
        if num_free < 0:
            return frozenset()
        room = num_free + num_stuck
        found = [one for one in waiters if not self._may_fit(one, room, scopes)]
        if len(found) < len(waiters):  # the first overdue one may stop those behind it, so `resolve` has to see it
            overdue = [one for one in found if now - one.arrived_at > AGING_S]
            seen = {one.session_id for one in (overdue if kept else nsmallest(1, overdue, key=_arrival))}
            found = [one for one in found if one.session_id not in seen]
        return frozenset(one.session_id for one in found)

    def _may_fit(self, session: Session, room: int, scopes: Container[bytes]) -> bool:
        """Returns whether so many free pages are enough for a session without pages, without its draft.

        scopes: of the sessions with pages. A page that is found but that no session uses is a free one.
        """
        needed = self._pool.pages_needed(session.session_id, len(session.tokens))
        if needed <= room or not session.prefix_scope or session.prefix_scope not in scopes:
            return needed <= room
        hit = self._pool.find(session.session_id, session.prefix_scope, session.tokens)
        return needed - len(hit.pages) + hit.num_unused <= room

    def _job(self, session: Session) -> Job:
        key, arrived_at, has_place = session.session_id, session.arrived_at, session.session_id in self._pool
        if self.accounts is None:
            return Job(job_id=key, arrived_at=arrived_at, waits_since=None if has_place else arrived_at)
        recompute_s = float(self._cost.round_s(len(session.tokens), 1, 0))
        return self.accounts.job(session, has_place=has_place, recompute_s=recompute_s)

    def opened(self, session: Session, before: Session | None, now: float, *, kept: bool) -> None:
        """Handles a session opened or reopened. before: previous session of its id, maybe the session itself.

        kept: pages of this id will not be freed.
        """
        if self.accounts is not None and before is not None and before is not session:
            self.accounts.opened(session, before, now, keeps_pages=kept)

    def began(self, planned: Round, sessions: Mapping[bytes, Session], now: float) -> None:
        """Updates the accounts after packing: preempted sessions lose their pages, admitted ones get some."""
        if self.accounts is None:
            return
        for session_id in planned.preempted:
            self.accounts.of(sessions[session_id]).leave(now)
        for session_id in planned.admitted:
            self.accounts.of(sessions[session_id]).enter(now)

    def finished(
        self, done: Round, moved: Iterable[Moved], sessions: Mapping[bytes, Session], duration_s: float
    ) -> None:
        """Updates the accounts after a round. sessions: those that took part and are still open."""
        if self.accounts is None:
            return
        token_s = duration_s / max(1, done.num_tokens)
        decided = [duration_s - token_s * entry.num_prefill for entry in done.entries if entry.samples]
        if decided:
            self.accounts.observe_round(sum(decided) / len(decided))
        for entry in done.entries:
            if (session := sessions.get(entry.session_id)) is not None:
                self.accounts.of(session).observe(entry, duration_s, token_s)
        for move in moved:
            if move.session.finished:
                self.accounts.end(move.session)
            else:
                self.accounts.of(move.session).rates.observe(move.outcome.num_accepted, move.num_verified)

    def keep(self, clients: Container[str]) -> None:
        if self.accounts is not None:
            self.accounts.keep_lengths(clients)
