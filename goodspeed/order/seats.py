"""Gives out places that are all alike, by any order. Knows nothing about what a place is, and keeps nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from goodspeed.order.base import Order
from goodspeed.order.job import Job


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
