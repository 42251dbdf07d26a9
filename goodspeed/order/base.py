"""The interface of orders, and the registry of orders by name. Knows nothing about any single order.

Who has places of some kind to give asks an order twice: `rank` says who comes first, `yields` whether somebody who has
a place gives it up. `seats.py` does both where all places are alike. Where they are not (pages of memory, say), whoever
plans takes the ranking, lets in what fits, and asks `yields` of those who are in the way, the last ranked first.

An order is asked anew whenever something changes: somebody comes or goes, or a round is over. It may remember what it
saw the last time, so one object belongs to one set of places, and `rank` is given everybody who waits, and who has a
place that might be given up.
"""

from collections.abc import Sequence
from typing import Protocol

from goodspeed.fair.registry import Registry
from goodspeed.order.job import Job

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
