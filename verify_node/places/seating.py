"""Who gives up memory, and who waits for it, where a round needs more pages than are free.

Sessions that are promised something have what they need. Then come those with memory, the best of them first: one that
needs more takes it from those behind it, the last first. Then come those without, as the order ranks them: free pages
first, then those of whoever `yields`, the last ranked first. Who finds none waits, and the next may fit.

Something always moves. A session is let in only with room for all that it has to be fed, and then what it still has to
read goes before everybody who is let in after it; nobody yields to a waiter before S_1 of deciding in its turn; and
while no round decides a token no ranking changes for ever, so the best of those with memory reads on to its end.

Nobody starves. Who has waited for AGING_S goes first among those who wait, and if it finds no room, nobody behind it is
let in. From then on it is the last to give way until it has had S_1.

Pages and jobs in, ids out; knows nothing about sessions, and keeps nothing.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from goodspeed.order import Job, Order
from goodspeed.order.base import AGING_S, is_overdue

Claim: TypeAlias = tuple[int, float]
"""How strong a session's claim to its memory is, before its rank counts: the smallest one is the strongest."""

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
        self.owned = owned
        self.needs = needs
        self.waiters = [job for job in ranked if not job.has_place]
        self.holders = sorted((job for job in ranked if job.has_place), key=lambda job: claims[job.job_id])
        self.num_free = num_free  # below 0 while promised sessions lack pages
        self.num_pages = num_free + sum(owned[job.job_id] for job in self.holders)  # that best effort has in all
        self.given: dict[Hashable, int] = {}
        self.leave: list[Hashable] = []
        self.wait: set[Hashable] = set()

    def give_to_promised(self) -> None:
        """Everybody else gives way to them, the last first, as far as they need it."""
        while self.num_free < 0 and self.holders:
            self._take(self.holders[-1])

    def give_to_holders(self) -> None:
        """Each that needs more pages to move takes them from those behind it, or waits with what it has."""
        for job in list(self.holders):
            if job in self.holders and job.job_id in self.needs:
                behind = self.holders[self.holders.index(job) + 1 :]
                self._give(job, behind)

    def let_in(self) -> None:
        """Those without pages. Only one displaces others in a round, since a round reads half of its tokens at most."""
        displaces = self.order.displaces
        for place, job in enumerate(self.waiters):
            num_before = len(self.leave)
            yielding = [one for one in self.holders if displaces and self.order.yields(one, job, self.now)]
            if self._give(job, yielding):
                displaces = displaces and len(self.leave) == num_before
            elif is_overdue(job, self.now, AGING_S) and self.needs[job.job_id] <= self.num_pages:
                self.wait.update(behind.job_id for behind in self.waiters[place:])
                return

    def _give(self, job: Job, others: Sequence[Job]) -> bool:
        """Free pages, and those of as many of the others as it takes, the last first; nobody leaves in vain."""
        missing, victims = self.needs[job.job_id] - self.num_free, []
        for other in reversed(others):
            if missing <= 0:
                break
            victims.append(other)
            missing -= self.owned[other.job_id] + self.given.get(other.job_id, 0)
        if missing > 0:
            self.wait.add(job.job_id)
            return False
        for victim in victims:
            self._take(victim)
        self.num_free -= self.needs[job.job_id]
        self.given[job.job_id] = self.needs[job.job_id]
        return True

    def _take(self, victim: Job) -> None:
        self.holders.remove(victim)
        self.leave.append(victim.job_id)
        self.wait.discard(victim.job_id)
        self.num_free += self.owned[victim.job_id] + self.given.pop(victim.job_id, 0)
