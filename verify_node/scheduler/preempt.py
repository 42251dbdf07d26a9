"""Decides, by an `Order`, which best-effort sessions have memory where a round needs more pages than are free.

Promised sessions have what they need. Then come those with memory, the best of them first: one that needs more preempts
those behind it, the last first. Then come those without, as the order ranks them: free pages first, then those of
whoever `yields`, the last ranked first. Who finds none waits, and the next may fit.

Something always moves. A session is admitted only with room for all that it has to be fed, and its prefill then goes
before everybody who is admitted after it; nobody yields to a waiter before S_1 of deciding in its turn; and while no
round decides a token no ranking changes for ever, so the best of those with memory goes on to its end.

Nobody starves. Who has waited for AGING_S goes first among those who wait, and if it finds no room, nobody behind it is
admitted. From then on it is preempted last until it has had S_1, if the order ages at all: with first come, first
served nobody passes it, and older texts never lose memory to younger ones.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.laps import Laps
from verify_node.scheduler.order import AGING_S, Fcfs, Job, Order
from verify_node.scheduler.round import Round
from verify_node.scheduler.service import Accounts, Claim, num_only_read
from verify_node.session.session import Session

ORDERS: dict[str, Callable[..., Order]] = {"fcfs": Fcfs, "laps": Laps}
"""The orders by name."""


def order_of(name: str) -> Order:
    """Makes an order of that name; ConfigError where there is none."""
    if name not in ORDERS:
        raise ConfigError(f"there is no order {name!r}; choose one of: {', '.join(sorted(ORDERS))}")
    return ORDERS[name]()


class Shortage(NamedTuple):
    """Sessions that a shortage of pages concerns."""

    preempt: tuple[Hashable, ...] = ()  # lose their pages, in this order
    wait: frozenset[Hashable] = frozenset()  # would move, and find no pages


class Contention:
    """Memory while it is shared out among the best-ranked. Sizes are in pages."""

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
    ) -> None:
        """jobs: best-effort sessions that have pages or wait for some. num_free: nobody's. claims: of those with pages.

        owned: pages of those that have some. needs: pages that each has to have beyond that to move in this round;
        those that no round can move are left out. num_promised: what promised sessions need beyond what they have.
        """
        ranked = order.rank(jobs, now)
        self.order = order
        self.now = now
        self.owned = dict(owned)  # by holder, with what it is given
        self.needs = needs
        self.waiters = [job for job in ranked if not job.has_place and job.job_id in needs]
        self.holders = [job for job in ranked if job.has_place]
        if order.ages:  # else who ranks first today does so to its end, and needs no claim to get somewhere
            self.holders.sort(key=lambda job: claims[job.job_id])
        self.num_free = num_free - num_promised  # below 0 while promised sessions lack pages
        self.num_held = sum(owned[job.job_id] for job in self.holders)
        self.num_pages = self.num_free + self.num_held  # that best effort has in all
        self.preempt: list[Hashable] = []
        self.wait: set[Hashable] = set()
        self._in_vain: list[tuple[tuple[float, ...], int]] = []  # who found too few that yield, and its need

    def resolve(self) -> Shortage:
        """Says who is preempted, and who waits."""
        self.serve_promised()
        self.serve_holders()
        self.admit()
        return Shortage(tuple(self.preempt), frozenset(self.wait))

    def serve_promised(self) -> None:
        """Preempts others for them, the last first, as far as they need it."""
        while self.num_free < 0 and self.holders:
            self._take(self.holders.pop())

    def serve_holders(self) -> None:
        """Each that needs more pages to move takes them from those behind it, or waits with what it has."""
        place = num_before = 0  # pages of all from the first to the one at `place`
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
        """Serves those without pages. One displaces others in a round, which prefills half of its tokens at most."""
        displaces = self.order.displaces
        for place, job in enumerate(self.waiters):
            need = self.needs[job.job_id]
            if need > self.num_free and displaces and (victims := self._who_yield(job, need)):
                self._displace(victims)
                displaces = False
            if need <= self.num_free:
                self.num_free -= need
                continue
            self.wait.add(job.job_id)
            if job.is_overdue(self.now, AGING_S) and need <= self.num_pages:
                self.wait.update(behind.job_id for behind in self.waiters[place:])
                return

    def _who_yield(self, waiter: Job, need: int) -> list[Job]:
        """Returns as many as needed, the last first; none if all of them together have too few pages."""
        if need > self.num_free + self.num_held:
            return []
        standing = self.order.standing(waiter, self.now)
        if any(need >= least and _is_no_better(standing, best) for best, least in self._in_vain):
            return []
        missing = need - self.num_free
        victims: list[Job] = []
        for holder in reversed(self.holders):
            if missing <= 0:
                break
            if self.order.yields(holder, waiter, self.now):
                victims.append(holder)
                missing -= self.owned[holder.job_id]
        if missing <= 0:
            return victims
        self._in_vain.append((standing, need))
        return []

    def _displace(self, victims: Sequence[Job]) -> None:
        gone = {victim.job_id for victim in victims}
        self.holders = [job for job in self.holders if job.job_id not in gone]
        for victim in victims:
            self._take(victim)

    def _take(self, victim: Job) -> None:
        num_pages = self.owned[victim.job_id]
        self.num_free += num_pages
        self.num_held -= num_pages
        self.preempt.append(victim.job_id)
        self.wait.discard(victim.job_id)


def _is_no_better(standing: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(own >= their for own, their in zip(standing, other, strict=True))


NUM_GONE = 64
"""Accounts of closed sessions that may be there beside as many as are open, however few rounds there are."""


class Preemption:
    """Keeps each text's service, and asks the order when KV pages are short."""

    def __init__(self, order: Order, cost: CostModel, pool: PagePool) -> None:
        """cost: the model of a round's time, which tells what reading a text again costs."""
        self.accounts = Accounts()
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
        """Says who is preempted before the round, and who waits for pages.

        resident: sessions with memory. needs: pages that each ready session needs beyond what it has. kept: promised
        sessions. others: that are ready, and which this round leaves out; they are ranked, since they wait, too. A page
        that several have counts for the oldest of them, and for none where a promised session has it.
        """
        resident = list(resident)
        holders = [session for session in resident if session.session_id not in kept]
        waiting = {session.session_id: session for session in (*ready, *others)}.values()
        waiters = [one for one in waiting if one.session_id not in self._pool and one.session_id not in kept]
        contending = sorted([*holders, *waiters], key=lambda session: session.admitted)
        keys = [session.session_id for session in contending if session.session_id in self._pool]
        promised = [session.session_id for session in resident if session.session_id in kept]
        contention = Contention(
            self._order,
            [self._job(session) for session in contending],
            now,
            num_free=self._pool.num_free,
            owned=dict(zip(keys, self._pool.owned(keys, others=promised), strict=True)),
            needs={key: pages for key, pages in needs.items() if key not in kept},
            claims={session.session_id: self.accounts.of(session).claim for session in holders},
            num_promised=sum(pages for key, pages in needs.items() if key in kept),
        )
        return contention.resolve()

    def _job(self, session: Session) -> Job:
        recompute_s = float(self._cost.round_s(len(session.tokens), 1, 0))
        return self.accounts.job(session, has_place=session.session_id in self._pool, recompute_s=recompute_s)

    def opened(
        self, session: Session, before: Session | None, sessions: Mapping[bytes, Session], now: float, *, kept: bool
    ) -> None:
        """A session was opened (again). before: what was open by its id until now, maybe the session itself.

        sessions: that are open. kept: memory by its id is not to be freed.
        """
        if before is not None and before is not session:
            self.accounts.opened(session, before, now, keeps_memory=kept)
        if len(self.accounts) > 2 * len(sessions) + NUM_GONE:
            self.accounts.keep(sessions)

    def began(self, planned: Round, sessions: Mapping[bytes, Session], now: float) -> None:
        """A round was packed: sessions lost their memory, and others were given some."""
        for session_id in planned.preempted:
            self.accounts.of(sessions[session_id]).leave(now)
        for session_id in planned.admitted:
            self.accounts.of(sessions[session_id]).enter(now)

    def finished(
        self, done: Round, moved: Iterable[Moved], sessions: Mapping[bytes, Session], duration_s: float
    ) -> None:
        """A round is done. sessions: those that took part and are still open."""
        token_s = duration_s / max(1, done.num_tokens)
        decided = [duration_s - token_s * num_only_read(entry) for entry in done.entries if entry.samples]
        if decided:
            self.accounts.observe_round(sum(decided) / len(decided))
        for entry in done.entries:
            if (session := sessions.get(entry.session_id)) is not None:
                self.accounts.of(session).observe(entry, duration_s, token_s)
        for move in moved:
            if move.session.finished:
                self.accounts.end(move.session)
            else:
                self.accounts.of(move.session).observe_draft(move.outcome.num_accepted, move.num_verified)

    def keep(self, sessions: Mapping[bytes, Session], clients: Container[str]) -> None:
        """Forgets sessions and clients that are gone. sessions: that are open."""
        self.accounts.keep(sessions)
        self.accounts.keep_lengths(clients)
