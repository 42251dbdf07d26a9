"""What all keepers of a fleet report, and what follows: the table, and how many replicas there should be.

Knows nothing about Ray, and has no clock.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from goodspeed.app.fleet.keeping.keeper import Report
from goodspeed.app.fleet.keeping.plan import Plan, number_of, replica_name
from goodspeed.fleet.scaling import Scaler
from goodspeed.fleet.table import Table

SILENT_S = 5.0
"""What a keeper said longer ago counts for nothing: nobody is sent to its replica."""

FORGET_S = 30.0
"""A keeper that has been silent for so long is not reported any more; it comes back by reporting."""


class Roster:
    """The replicas of a fleet."""

    def __init__(self, plan: Plan) -> None:
        self._scaler = Scaler(plan.limits)
        self._is_fixed = plan.max_replicas == plan.replicas
        self._reports: dict[str, tuple[Report, float]] = {}  # and when each was heard

    def hear(self, report: Report, now: float, wall: float) -> None:
        """A keeper reports. Its load is of this moment, by the clock of whoever keeps the table."""
        load = replace(report.load, told_at=wall) if report.load is not None else None
        self._reports[report.name] = replace(report, load=load), now

    def forget(self, name: str) -> None:
        self._reports.pop(name, None)

    def reports(self, now: float) -> list[Report]:
        """Returns what is known of each replica; what is old has no load."""
        found = []
        for report, heard_at in sorted(self._reports.values(), key=lambda one: number_of(one[0].name)):
            if now - heard_at <= SILENT_S:
                found.append(report)
            elif now - heard_at <= FORGET_S:
                found.append(replace(report, load=None))
        return found

    def table(self, now: float) -> Table | None:
        """Returns the table for all of them; None when nobody has reported yet."""
        replicas: dict[str, Report] = {}
        for report in self.reports(now):
            if report.state != "left":
                replicas.setdefault(report.endpoint, report)
        return Table(tuple(report.replica for report in replicas.values())) if replicas else None

    def wanted(self, num_keepers: int, now: float) -> int | None:
        """How many replicas the loads ask for; None while that is fixed, or not every keeper reports a ready one."""
        loads = [one.load for one in self.reports(now) if one.load is not None and one.state == "ready"]
        if self._is_fixed or not loads or len(loads) != num_keepers:
            return None
        return self._scaler.decide(loads, now)

    def least_busy(self, now: float, number: int) -> list[str]:
        """Returns as many names, those first that have the fewest sessions; of equal ones the newest first."""
        staying = [report for report in self.reports(now) if report.state not in ("draining", "left")]

        def rank(report: Report) -> tuple[int, int]:
            return (report.load.num_sessions if report.load is not None else 0, -number_of(report.name))

        return [report.name for report in sorted(staying, key=rank)[:number]]


def new_names(taken: Sequence[str], number: int) -> list[str]:
    """Returns names for as many replicas more: the first that are free."""
    names: list[str] = []
    candidate = 1
    while len(names) < number:
        if (name := replica_name(candidate)) not in taken:
            names.append(name)
        candidate += 1
    return names
