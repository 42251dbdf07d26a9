"""Rivals of the verify node's orders: least attained service, LAPS-SD's baseline, and shortest job first by length.

Importing this adds them to `ORDERS`, so that a verify core knows them, too.
"""

from collections.abc import Sequence
from typing import Any

from verify_node.scheduler.laps import FIRST_S, GROWTH, NUM_QUEUES, Laps
from verify_node.scheduler.order import AGING_S, Job, Order
from verify_node.scheduler.preempt import ORDERS

NEVER = 1 << 60
"""Rounds after which a rate would be stable: more than there are."""


class Las(Laps):
    """Higher queue first, then first come; who is in a lower queue than a waiter gives up its place.

    LAPS to whom no job ever becomes perceptible, and who weighs no time against another.
    """

    def __init__(
        self,
        num_queues: int = NUM_QUEUES,
        growth: float = GROWTH,
        first_s: float = FIRST_S,
        aging_s: float = AGING_S,
    ) -> None:
        super().__init__(num_queues, growth, first_s, num_rounds=NEVER, aging_s=aging_s, guesses=False)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        if holder.turn_s < self.queues.first_s:
            return False
        is_higher = self.queues.level(waiter.attained_s) < self.queues.level(holder.attained_s)
        return is_higher or waiter.is_overdue(now, self.aging_s)

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        return (-1.0 if waiter.is_overdue(now, self.aging_s) else self.queues.level(waiter.attained_s),)


class Sjf:
    """By the tokens that are left; nobody gives up a place."""

    displaces = False
    ages = True

    def __init__(self, aging_s: float = AGING_S) -> None:
        """aging_s: whoever has waited for longer goes first."""
        self.aging_s = aging_s

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        def key(job: Job) -> tuple[tuple[bool, float], float, float]:
            return job.overdue_first(now, self.aging_s), job.remaining_tokens, job.arrived_at

        return sorted(jobs, key=key)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return False

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        return ()


ORDERS.update(las=Las, sjf=Sjf)


def create(name: str, **options: Any) -> Order:
    """Makes an order of that name."""
    return ORDERS[name](**options)
