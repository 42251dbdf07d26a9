"""Orders of those who contend for places, pages of KV memory say: the interface, and first come, first served.

Whoever has places to give asks an order twice: `rank` says who comes first, `yields` whether a holder gives its place
to a waiter. It is asked anew whenever somebody comes or goes, or a round is over. Stateful: one instance per queue.
Pass `rank` all waiters and all preemptible holders.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

AGING_S = 60.0
"""A job that has waited for longer goes before all that have not. Users of a chat leave after about a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One text, as far as it is known. Seconds throughout; services are of the contended thing (say, round time)."""

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
    recompute_s: float = 0.0  # cost of coming back to a place after giving it up now

    @property
    def has_place(self) -> bool:
        return self.waits_since is None

    def remaining_s(self, rate: float) -> float:
        """T_i of LAPS-SD's Eq. (6) over the tokens that are left: L_i (n T_draft + T_target) / (n A_i + 1)."""
        seconds = self.num_drafted * self.draft_s + self.round_s
        if not seconds:
            return 0.0  # inf tokens at no cost are no time, and not nan
        return self.remaining_tokens * seconds / (self.num_drafted * rate + 1.0)

    def is_overdue(self, now: float, aging_s: float) -> bool:
        """Returns whether it has waited for longer than `aging_s`."""
        return self.waits_since is not None and now - self.waits_since > aging_s

    def overdue_first(self, now: float, aging_s: float) -> tuple[bool, float]:
        """The beginning of a sort key: overdue jobs go first, the longest wait before the others."""
        if self.waits_since is not None and self.is_overdue(now, aging_s):
            return False, self.waits_since
        return True, 0.0


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
        """Returns whether `holder` gives up its place so that `waiter` may have it. Both were in the last `rank`."""
        ...

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        """Numbers of a waiter that `yields` compares: a holder that yields to one yields to all with smaller numbers.

        So whoever plans need not ask all holders for each waiter. The waiter was in the last `rank`.
        """
        ...


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
