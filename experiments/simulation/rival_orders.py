"""Rivals of the verify node's orders: least attained service, LAPS-SD's baseline, and shortest job first by length.

Importing this adds them to `ORDERS`, so that a verify core knows them, too.
"""

from collections.abc import Sequence
from typing import Any

from verify_node.scheduler.orders import AGING_S, ORDERS, Job, Order
from verify_node.scheduler.orders.laps import Laps

NEVER = 1 << 60
"""Rounds after which a rate would be stable: more than there are."""


@ORDERS.register("las")
class Las(Laps):
    """Higher queue first, then first come; who is in a lower queue than a waiter gives up its place.

    LAPS to whom no job ever becomes perceptible, and who weighs no time against another.
    """

    num_rounds = NEVER
    guesses = False

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        if holder.turn_s < self.bounds[0]:
            return False
        is_higher = self.level(waiter.attained_s) < self.level(holder.attained_s)
        return is_higher or waiter.is_overdue(now, self.aging_s)


@ORDERS.register("sjf")
class Sjf(Order):
    """By the tokens that are left; nobody gives up a place."""

    aging_s = AGING_S  # whoever has waited for longer goes first

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        def key(job: Job) -> tuple[tuple[bool, float], float, float]:
            return job.overdue_first(now, self.aging_s), job.remaining_tokens, job.arrived_at

        return sorted(jobs, key=key)


def create(name: str, **parameters: Any) -> Order:
    """Makes an order of that name with other parameters than its own."""
    order = ORDERS.find(name)()
    for parameter, value in parameters.items():
        getattr(order, parameter)  # an error where it is not there
        setattr(order, parameter, value)
    return order


def bounds(num_queues: int, growth: float, first_s: float) -> tuple[float, ...]:
    """Seconds of service at which each queue but the first begins. num_queues: K. growth: M. first_s: S_1."""
    return tuple(first_s * growth**number for number in range(num_queues - 1))
