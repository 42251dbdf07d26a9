"""Collects the reports of a fleet's replicas. Has no clock."""

from collections.abc import Collection, Sequence
from itertools import count, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table

SILENT_S, HUNG_S = 5.0, 10.0
"""Seconds of silence after which a replica gets no sessions, and after which it is restarted."""


class Report(Struct, frozen=True):
    """The state of a replica, as reported to the fleet."""

    replica: Replica
    state: str = "starting"  # or ready, draining, failing
    pid: int | None = None
    why: str = ""  # its latest end
    restarts: int = 0

    def told(self) -> dict[str, Any]:
        """Returns its fields of `status --json`."""
        replica, load = self.replica, self.replica.load
        found: dict[str, Any] = {
            "name": replica.name,
            "endpoint": replica.endpoint,
            "state": self.state,
            "pid": self.pid,
        }
        found |= {"sessions": load and load.num_sessions, "max_sessions": load and load.max_sessions}
        found |= {"pages": load and load.num_pages - load.free_pages, "num_pages": load and load.num_pages}
        return {**found, "round_s": load and load.round_s, "restarts": self.restarts, "why": self.why}

    def with_load(self, load: Load | None) -> "Report":
        return replace(self, replica=replace(self.replica, load=load))


class Reports:
    """The newest report of each replica, by name."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[Report, float]] = {}  # with its time of arrival

    def hear(self, told: Report, now: float, wall: float) -> bool:
        """Takes a report, and dates its load; returns True for the first one of a restarted process.

        wall: the present by the table keeper's clock.
        """
        before, _ = self._heard.get(told.replica.name, (told, now))
        is_new = before.pid != told.pid  # Ray has restarted its process
        why = told.why or before.why or ("its process ended" if is_new else "")
        told = replace(told, restarts=before.restarts + is_new, why=why)
        if is_new and before.state in ("starting", "failing"):
            told = replace(told, state="failing")
        load = told.replica.load
        self._heard[told.replica.name] = told.with_load(load and replace(load, told_at=wall)), now
        return is_new

    def has(self, name: str) -> bool:
        """True if this replica has reported."""
        return name in self._heard

    def forget_all_but(self, names: Sequence[str]) -> None:
        """Drops the reports of all other replicas."""
        self._heard = {name: heard for name, heard in self._heard.items() if name in names}

    def known(self, now: float) -> list[Report]:
        """Returns each replica's newest report, in the order of their numbers; old reports without their loads."""
        found = sorted(self._heard.values(), key=lambda pair: number_of(pair[0].replica.name))
        return [one if now - heard_at <= SILENT_S else one.with_load(None) for one, heard_at in found]

    def told(self, names: Sequence[str], now: float) -> list[dict[str, Any]]:
        """Returns the `status --json` fields of these replicas, also of those that have not reported."""
        known = {one.replica.name: one for one in self.known(now)}
        return [known.get(name, Report(Replica(name, ""))).told() for name in names]

    def table(self, now: float) -> Table:
        """Returns the table of all replicas that have reported; raises ValueError if there are none."""
        return Table(tuple({one.replica.endpoint: one.replica for one in self.known(now)}.values()))

    def hung(self, now: float) -> list[str]:
        """Returns replicas that served and have been silent for too long, each of them once."""
        late = [name for name, (one, at) in self._heard.items() if one.replica.load and now - at > HUNG_S]
        for name in late:
            report, heard_at = self._heard[name]
            self._heard[name] = replace(report.with_load(None), why=f"it reported nothing for {HUNG_S:g} s"), heard_at
        return late

    def least_busy(self, names: Sequence[str], now: float) -> list[str]:
        """Returns these names in the order of their number of sessions, those that do not serve before all others;
        ties: the newest first."""
        known = {one.replica.name: one for one in self.known(now)}
        idle = {name for name, one in known.items() if one.state in ("starting", "failing")}
        busy = {name: load.num_sessions for name, one in known.items() if (load := one.replica.load)}
        return sorted(names, key=lambda name: (name not in idle, busy.get(name, 0), -number_of(name)))


def free_names(taken: Collection[str], number: int) -> list[str]:
    """Returns the names of so many further replicas: those of the lowest numbers. taken: names of those that are
    there."""
    free = (name for n in count(1) if (name := f"replica-{n}") not in taken)
    return list(islice(free, max(0, number)))


def number_of(name: str) -> int:
    return int(name.rpartition("-")[2])
