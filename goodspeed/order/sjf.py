"""Shortest job first by length alone (LP-SJF of the LAPS-SD paper where lengths are predicted).

Knows nothing about acceptance.
"""

from collections.abc import Sequence

from goodspeed.order.base import AGING_S, overdue_first, register
from goodspeed.order.job import Job


@register("sjf")
class Sjf:
    """By the tokens that are left; nobody gives up a place."""

    displaces = False
    ages = True

    def __init__(self, aging_s: float = AGING_S) -> None:
        """aging_s: whoever has waited for longer goes first."""
        self.aging_s = aging_s

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        def key(job: Job) -> tuple[tuple[bool, float], float, float]:
            return overdue_first(job, now, self.aging_s), job.remaining_tokens, job.arrived_at

        return sorted(jobs, key=key)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return False

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        return ()
