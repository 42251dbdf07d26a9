"""First come, first served: today's order, and the simplest one. Knows nothing about sizes."""

from collections.abc import Sequence

from goodspeed.order.base import register
from goodspeed.order.job import Job


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
