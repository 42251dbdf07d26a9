"""First come, first served."""

from collections.abc import Sequence

from verify_node.scheduler.orders.base import ORDERS, Job


@ORDERS.register("fcfs")
class Fcfs:
    """By arrival; no job gives up its place. No job starves, since all earlier jobs end."""

    displaces = False
    by_arrival = True

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        return sorted(jobs, key=lambda job: job.arrived_at)

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return False

    def priority(self, waiter: Job, now: float) -> tuple[float, ...]:
        return ()
