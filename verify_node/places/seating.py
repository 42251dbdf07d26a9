"""Who gives up memory, and who waits for it, where a round needs more pages than are free.

Sessions that are promised something have what they need. Then come those with memory, the best of them first: one that
needs more takes it from those behind it, the last first. Then come those without, as the order ranks them: free pages
first, then those of whoever `yields`, the last ranked first. Who finds none waits, and the next may fit.

Something always moves. A session is let in only with room for all that it has to be fed, and then what it still has to
read goes before everybody who is let in after it; nobody yields to a waiter before S_1 of deciding in its turn; and
while no round decides a token no ranking changes for ever, so the best of those with memory reads on to its end.

Nobody starves. Who has waited for AGING_S goes first among those who wait, and if it finds no room, nobody behind it is
let in. From then on it is the last to give way until it has had S_1, if the order ages at all: with first come, first
served nobody passes it, and older texts never lose memory to younger ones.

Pages and jobs in, ids out; knows nothing about sessions, and keeps nothing.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from goodspeed.order import Job, Order
from goodspeed.order.base import AGING_S, is_overdue

Claim: TypeAlias = tuple[int, float]
"""How strong a session's claim to its memory is, before its rank counts: the smallest one is the strongest.

It counts where the order ages."""

ENTERED_OVERDUE, IN_FIRST_S, SERVED = 0, 1, 2
"""Kinds of claims: it was let in because it had waited too long; it has had less than S_1 in this turn; neither."""


class Seating(NamedTuple):
    """What becomes of memory before a round."""

    leave: tuple[Hashable, ...] = ()  # give up their pages, in this order
    wait: frozenset[Hashable] = frozenset()  # would move, and find no pages


def seat(
    order: Order,
    jobs: Sequence[Job],
    now: float,
    *,
    num_free: int,
    owned: Mapping[Hashable, int],
    needs: Mapping[Hashable, int],
    claims: Mapping[Hashable, Claim],
    num_promised: int = 0,
) -> Seating:
    """Fits the best-ranked into memory. Sizes are in pages.

    jobs: best-effort sessions that have pages or wait for some. num_free: nobody's. owned: of those that have some.
    needs: what each has to have beyond that to move in this round; those that no round can move are left out. claims:
    of those with pages. num_promised: what promised sessions need beyond what they have.
    """
    seating = _Seating(order, jobs, now, num_free - num_promised, owned, needs, claims)
    seating.give_to_promised()
    seating.give_to_holders()
    seating.let_in()
    return Seating(tuple(seating.leave), frozenset(seating.wait))


class _Seating:
    """Memory while it is shared out."""

    def __init__(
        self,
        order: Order,
        jobs: Sequence[Job],
        now: float,
        num_free: int,
        owned: Mapping[Hashable, int],
        needs: Mapping[Hashable, int],
        claims: Mapping[Hashable, Claim],
    ) -> None:
        ranked = order.rank(jobs, now)
        self.order = order
        self.now = now
        self.owned = dict(owned)  # by holder, with what it is given
        self.needs = needs
        self.waiters = [job for job in ranked if not job.has_place and job.job_id in needs]
        self.holders = [job for job in ranked if job.has_place]
        if order.ages:  # else who ranks first today does so to its end, and needs no claim to get somewhere
            self.holders.sort(key=lambda job: claims[job.job_id])
        self.num_free = num_free  # below 0 while promised sessions lack pages
        self.num_held = sum(owned[job.job_id] for job in self.holders)
        self.num_pages = self.num_free + self.num_held  # that best effort has in all
        self.leave: list[Hashable] = []
        self.wait: set[Hashable] = set()
        self._in_vain: list[tuple[tuple[float, ...], int]] = []  # who found too few that yield, and its need

    def give_to_promised(self) -> None:
        """Everybody else gives way to them, the last first, as far as they need it."""
        while self.num_free < 0 and self.holders:
            self._take(self.holders.pop())

    def give_to_holders(self) -> None:
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

    def let_in(self) -> None:
        """Those without pages. Only one displaces others in a round, since a round reads half of its tokens at most."""
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
            if is_overdue(job, self.now, AGING_S) and need <= self.num_pages:
                self.wait.update(behind.job_id for behind in self.waiters[place:])
                return

    def _who_yield(self, waiter: Job, need: int) -> list[Job]:
        """As many as it takes, the last first; none if all who do have too few pages, since nobody leaves in vain."""
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
        self.leave.append(victim.job_id)
        self.wait.discard(victim.job_id)


def _is_no_better(standing: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(own >= their for own, their in zip(standing, other, strict=True))
