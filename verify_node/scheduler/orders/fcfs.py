"""First come, first served."""

from collections.abc import Sequence

from verify_node.scheduler.orders.base import ORDERS, Job, Order


@ORDERS.register("fcfs")
class Fcfs(Order):
    """By arrival; no job gives up its place. No job starves, since all earlier jobs end."""

    by_arrival = True

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        return sorted(jobs, key=lambda job: job.arrived_at)
