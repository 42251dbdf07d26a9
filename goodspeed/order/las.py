"""Least attained service, in queues: LAPS-SD without perception, its baseline. Knows nothing about sizes."""

from collections.abc import Sequence

from goodspeed.order.base import AGING_S, is_overdue, overdue_first, register
from goodspeed.order.job import Job
from goodspeed.order.queues import FIRST_S, GROWTH, NUM_QUEUES, Queues


@register("las")
class Las:
    """Higher queue first, then first come; who is in a lower queue than a waiter gives up its place.

    A job keeps a place for S_1 of service at least, so that one which has waited for `aging_s` gets somewhere.
    """

    displaces = True
    ages = True

    def __init__(
        self,
        num_queues: int = NUM_QUEUES,
        growth: float = GROWTH,
        first_s: float = FIRST_S,
        aging_s: float = AGING_S,
    ) -> None:
        self.queues = Queues(num_queues, growth, first_s)
        self.aging_s = aging_s

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        def key(job: Job) -> tuple[tuple[bool, float], int, float]:
            return overdue_first(job, now, self.aging_s), self.queues.level(job.attained_s), job.arrived_at

        return sorted(jobs, key=key)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        if holder.turn_s < self.queues.first_s:
            return False
        is_higher = self.queues.level(waiter.attained_s) < self.queues.level(holder.attained_s)
        return is_higher or is_overdue(waiter, now, self.aging_s)

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        return (-1.0 if is_overdue(waiter, now, self.aging_s) else self.queues.level(waiter.attained_s),)
