"""Orders of those who contend for places of some kind, the registry of orders by name, and first come, first served.

Who has places to give asks an order twice: `rank` says who comes first, `yields` whether somebody who has a place gives
it up. `seats` does both where all places are alike. Where they are not (pages of memory, say), whoever plans takes the
ranking, admits what fits, and asks `yields` of those who are in the way, the last ranked first.

An order is asked anew whenever something changes: somebody comes or goes, or a round is over. Stateful: one instance
per queue. Pass `rank` all waiters, and all who have a place that they may lose.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from goodspeed.fair.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is known about one text. Seconds throughout; services are of the contended thing (slot time, round time)."""

    job_id: Hashable
    arrived_at: float
    waits_since: float | None = None  # None: it has a place
    attained_s: float = 0.0  # E_i, service so far, over all its turns
    turn_s: float = 0.0  # of that, since it was given the place that it has
    remaining_tokens: float = math.inf  # L_i, expected
    rates: tuple[float, ...] = ()  # acceptance rate after each of its last rounds (`RateHistory.rates`)
    num_drafted: float = 0.0  # n, drafted tokens of a round
    draft_s: float = 0.0  # T_draft, of one drafted token
    round_s: float = 0.0  # T_target, of one verification; the whole cadence where drafting is not told apart
    recompute_s: float = 0.0  # what it costs to come back to a place after giving it up now

    @property
    def has_place(self) -> bool:
        return self.waits_since is None

    def remaining_s(self, rate: float) -> float:
        """T_i of the paper's Eq. (6) over the tokens that are left: L_i (n T_draft + T_target) / (n A_i + 1)."""
        seconds = self.num_drafted * self.draft_s + self.round_s
        if not seconds:
            return 0.0  # inf tokens at no cost are no time, and not nan
        return self.remaining_tokens * seconds / (self.num_drafted * rate + 1.0)


AGING_S = 60.0
"""A job that has waited for longer goes before all that have not. Users of a chat leave after about a minute."""


class Order(Protocol):
    """Ranks those who wait for places or have them."""

    displaces: bool
    """Whether anybody ever yields. Where nobody does, it is enough to rank those who wait."""

    ages: bool
    """Whether the ranking changes with who has waited for too long. Where it does not, a rank needs no protection."""

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        """Returns all of them, the first to be served first. Deterministic: ties go to whoever arrived first."""
        ...

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        """Whether `holder` gives up its place so that `waiter` may have it. Both were in the last `rank`."""
        ...

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        """What `yields` looks at of a waiter, as numbers.

        Who yields to one yields to everybody of whom all of these are as small or smaller, so whoever plans need not
        ask all for each waiter. It was in the last `rank`.
        """
        ...


_orders: Registry[Order] = Registry("order", "there is no order {name!r}")

register = _orders.register
names = _orders.names
create = _orders.create


def is_overdue(job: Job, now: float, aging_s: float) -> bool:
    """Whether the job has waited for longer than `aging_s`."""
    return job.waits_since is not None and now - job.waits_since > aging_s


def overdue_first(job: Job, now: float, aging_s: float) -> tuple[bool, float]:
    """The beginning of a sort key: whoever has waited too long goes first, the longest wait before the others."""
    if job.waits_since is not None and is_overdue(job, now, aging_s):
        return False, job.waits_since
    return True, 0.0


@dataclass(frozen=True, slots=True)
class Seats:
    """Who is given a place now, and who gives one up."""

    enter: tuple[Job, ...] = ()
    leave: tuple[Job, ...] = ()


def seats(order: Order, jobs: Sequence[Job], num_places: float, now: float) -> Seats:
    """Fills the free places with the best waiters; then those with a place may yield, the last ranked first.

    jobs: all who wait or have a place. num_places: a whole number, or infinity. Nobody leaves because there are fewer
    places than before.
    """
    ranked = order.rank(jobs, now)
    waiters = [job for job in ranked if not job.has_place]
    holders = [job for job in ranked if job.has_place]
    num_free = int(max(0, min(num_places - len(holders), len(waiters))))
    enter, leave = waiters[:num_free], []
    for waiter in waiters[num_free:] if len(holders) <= num_places else ():
        holder = next((job for job in reversed(holders) if order.yields(job, waiter, now)), None)
        if holder is not None:
            holders.remove(holder)
            enter.append(waiter)
            leave.append(holder)
    return Seats(tuple(enter), tuple(leave))


@register("fcfs")
class Fcfs:
    """By arrival; nobody gives up a place. Nobody starves, since everybody before a job ends."""

    displaces = False
    ages = False

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        return sorted(jobs, key=lambda job: job.arrived_at)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return False

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        return ()
