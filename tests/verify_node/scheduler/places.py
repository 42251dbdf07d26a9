"""Gives equal places to those whom an order ranks first, and takes them from those who yield."""

from collections.abc import Sequence
from typing import NamedTuple

from verify_node.scheduler.orders.base import Job, Order


class Given(NamedTuple):
    """Jobs that are given a place now, and jobs that give one up."""

    enter: tuple[Job, ...] = ()
    leave: tuple[Job, ...] = ()


def give(order: Order, jobs: Sequence[Job], num_places: float, now: float) -> Given:
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
    return Given(tuple(enter), tuple(leave))
