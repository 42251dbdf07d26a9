"""The interface of orders, and the registry of orders by name.

For an allocator of places, `rank` sorts the jobs, and `yields` decides whether a holder gives its place to a waiter.
The allocator calls them again whenever a job comes or goes, or a round ends.
Stateful: one instance per queue. Pass `rank` all waiters and all preemptible holders.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from goodspeed.errors import PolicyError
from goodspeed.registry import Misfits, Registry, created

AGING_S = 60.0
"""Seconds of waiting after which a job goes before all others. Users of a chat leave after about a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One text's known properties. Times in seconds; services are of the contended resource (say, round time)."""

    job_id: Hashable
    arrived_at: float
    waits_since: float | None = None  # None: it has a place
    attained_s: float = 0.0  # E_i, service so far, over all its turns
    turn_s: float = 0.0  # service since it got its current place; for KV pages, time of deciding only
    remaining_tokens: float = math.inf  # L_i, expected
    rates: tuple[float, ...] = ()  # acceptance rate after each of its newest rounds (`RateHistory.rates`)
    num_drafted: float = 0.0  # n, drafted tokens of a round
    draft_s: float = 0.0  # T_draft, of one drafted token
    round_s: float = 0.0  # T_target, of one verification; includes drafting where that is not measured separately
    recompute_s: float = 0.0  # cost of regaining a place after giving it up now

    @property
    def has_place(self) -> bool:
        return self.waits_since is None

    def remaining_s(self, rate: float) -> float:
        """Returns T_i of LAPS-SD's Eq. (6) over the remaining tokens: L_i (n T_draft + T_target) / (n A_i + 1)."""
        seconds = self.num_drafted * self.draft_s + self.round_s
        if not seconds:
            return 0.0  # infinitely many tokens at no cost take no time, and not nan
        return self.remaining_tokens * seconds / (self.num_drafted * rate + 1.0)

    def is_overdue(self, now: float, aging_s: float) -> bool:
        return self.waits_since is not None and now - self.waits_since > aging_s

    def overdue_first(self, now: float, aging_s: float) -> tuple[bool, float]:
        """Returns the beginning of a sort key: overdue jobs first, by the longest wait."""
        if self.waits_since is not None and self.is_overdue(now, aging_s):
            return False, self.waits_since
        return True, 0.0


class Order(ABC):
    """Ranks jobs that wait for places or have them. By default no job gives up its place for another one's rank."""

    displaces = False
    """True if holders may yield; otherwise it is enough to rank the waiters."""

    by_arrival = False
    """True if jobs rank by arrival alone: no accounts are kept, and the first job stays first to its end."""

    @abstractmethod
    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        """Returns all jobs, the first to be served first. Deterministic: ties go to the earliest arrival."""

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        """True if `holder` gives up its place for `waiter`. Both were in the latest `rank`."""
        return False


class Ranking(Protocol):
    """Names what a class that is not ours must have (docs/POLICY.md): one method, and no parameters."""

    def rank(self, jobs: Sequence[Job], now: float) -> Sequence[Job]: ...


class OwnOrder(Order):
    """An order that is not ours. Overdue jobs go first whatever it ranks, so that none starves.

    Where it fails or loses a job, jobs rank by arrival.
    """

    def __init__(self, name: str, make: Callable[[], Ranking]) -> None:
        """Creates the order; ConfigError if that fails, or if it has no method `rank`."""
        self._misfits = Misfits(f"the order {name}", "these sessions are ranked by arrival")
        self._own = created(f"the order {name}", make, "rank(jobs, now)")

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        by_arrival = sorted(jobs, key=lambda job: job.arrived_at)
        ranked = self._misfits.answer(lambda: self._checked(by_arrival, now), by_arrival)
        return sorted(ranked, key=lambda job: job.overdue_first(now, AGING_S))

    def _checked(self, jobs: Sequence[Job], now: float) -> list[Job]:
        by_id = {job.job_id: job for job in jobs}
        ranked = [job.job_id for job in self._own.rank([*jobs], now)]
        if len(ranked) != len(by_id) or set(ranked) != by_id.keys():
            raise PolicyError(f"rank returned {len(ranked)} jobs; it must return each of the {len(by_id)} once")
        return [by_id[job_id] for job_id in ranked]


ORDERS: Registry[Callable[[], Order]] = Registry(
    "order", "goodspeed.orders", lambda name, make: partial(OwnOrder, name, make), own="class"
)
"""Constructors of orders, by name."""
