"""`goodspeed-fleet status`, `drain`, `scale` and `down`: of a fleet that is up.

When its Ray is gone, `status` and `down` go by what is written down on this machine.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING

from goodspeed.app.fleet import checks
from goodspeed.app.fleet.cluster import head
from goodspeed.app.fleet.keeping import processes
from goodspeed.app.fleet.keeping.folders import Folder, Record, read
from goodspeed.app.fleet.keeping.keeper import Report, State
from goodspeed.command.events import print_json
from goodspeed.command.reporter import Reporter
from goodspeed.errors import ConfigError, ProcessError
from goodspeed.fleet.replicas import MAX_REPLICAS, Load

if TYPE_CHECKING:  # it imports Ray
    from goodspeed.app.fleet.cluster.handles import Fleet

POLL_S = 0.5
SLACK_S = 10.0
"""What it takes to hear that the last replica has left."""

COLUMNS = ("name", "endpoint", "state", "sessions", "pages", "round", "restarts")


def status(namespace: argparse.Namespace, reporter: Reporter) -> int:
    """Prints what each replica does."""
    folder, record = _find(namespace.name)
    is_there = head.answers(record.address)
    if is_there:
        with connected(folder, record) as handles:
            reports, _ = handles.Fleet.find().reports()
    else:
        reporter.say(
            "Ray is gone: nobody starts a replica again, and these are the ones of this machine; "
            "`goodspeed-fleet up` takes them over"
        )
        reports = written_down(folder)
    if namespace.json:
        print_json({"fleet": record.plan.name, "ray": is_there, "replicas": [to_json(report) for report in reports]})
    else:
        print(to_text(reports))
    return 0


def drain(namespace: argparse.Namespace, reporter: Reporter) -> int:
    """Has a replica leave, and waits until it has."""
    folder, record = _find(namespace.name)
    with _fleet(folder, record) as fleet:
        _, names = fleet.reports()
        if namespace.replica not in names:
            raise ConfigError(
                f"the fleet {record.plan.name} has no replica {namespace.replica!r}; choose one of: {', '.join(names)}"
            )
        if len(names) == 1:
            raise ConfigError(f"{namespace.replica} is the last one; end the fleet with `goodspeed-fleet down`")
        fleet.drain(namespace.replica)
        reporter.say("%s is leaving ...", namespace.replica)
        while namespace.replica in fleet.reports()[1]:
            time.sleep(POLL_S)
    reporter.say("%s has left", namespace.replica)
    return 0


def scale(namespace: argparse.Namespace, reporter: Reporter) -> int:
    """Starts replicas, or has some leave, and waits until that is done."""
    folder, record = _find(namespace.name)
    plan, number = record.plan, namespace.number
    fewest, most = (1, MAX_REPLICAS) if plan.max_replicas == plan.replicas else (plan.replicas, plan.max_replicas)
    if not fewest <= number <= most:
        raise ConfigError(f"the fleet {plan.name} may have {fewest} to {most} replicas, not {number}")
    from goodspeed.app.fleet.up import wait_until_ready

    with _fleet(folder, record) as fleet:
        fleet.scale(number)
        wait_until_ready(fleet.reports, number, reporter)
    reporter.say("the fleet has %d replicas", number)
    return 0


def down(namespace: argparse.Namespace, reporter: Reporter) -> int:
    """Ends everything that `up` started."""
    folder, record = _find(namespace.name)
    take_down(folder, reporter, namespace.timeout_s)
    reporter.say("the fleet %s is down", record.plan.name)
    return 0


def take_down(folder: Folder, reporter: Reporter, timeout_s: float) -> None:
    """Has all replicas leave, or kills them after timeout_s; then ends Ray, if it is ours, and forgets the fleet."""
    record = folder.record()
    if record is not None:
        if head.answers(record.address):
            with suppress(ProcessError), _fleet(folder, record) as fleet:
                _have_all_leave(fleet, reporter, timeout_s)
        if record.head is not None:
            head.end(record.head)
    left = [ran for found in folder.replicas().values() if (ran := found.running()) is not None]
    processes.end(left, grace_s=timeout_s)
    folder.remove()


def _have_all_leave(fleet: "Fleet", reporter: Reporter, timeout_s: float) -> None:
    _, names = fleet.reports()
    reporter.say("%s ...", "1 replica is leaving" if len(names) == 1 else f"{len(names)} replicas are leaving")
    for name in names:
        fleet.drain(name, timeout_s)
    deadline = time.monotonic() + timeout_s + SLACK_S
    while fleet.reports()[1] and time.monotonic() < deadline:
        time.sleep(POLL_S)
    fleet.end()


def written_down(folder: Folder) -> list[Report]:
    """Returns what the files of this machine say of the replicas that run on it."""
    found = []
    for name, replica in folder.replicas().items():
        started, ran = replica.started(), replica.running()
        if started is None:
            continue
        load = read(replica.status, Load) if ran is not None else None
        state: State = "failing" if ran is None else "starting" if load is None else "ready"
        bind = next(word for word in started.command if word.startswith("--bind=")).removeprefix("--bind=")
        found.append(Report(name, bind, state, pid=ran.pid if ran is not None else None, load=load))
    return found


def to_json(report: Report) -> dict[str, object]:
    """Returns what `status --json` tells of a replica."""
    load = report.load
    return {
        "name": report.name,
        "endpoint": report.endpoint,
        "state": report.state,
        "pid": report.pid,
        "sessions": load.num_sessions if load is not None else None,
        "max_sessions": load.max_sessions if load is not None else None,
        "pages": load.num_pages - load.free_pages if load is not None else None,
        "num_pages": load.num_pages if load is not None else None,
        "round_s": load.round_s if load is not None else None,
        "restarts": report.num_restarts,
        "why": report.why,
    }


def to_text(reports: list[Report]) -> str:
    """Returns the table of `status`, and under it why replicas ended last."""
    rows = [COLUMNS, *(_row(report) for report in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + [f"{report.name} ended, and said last: {report.why}" for report in reports if report.why])


def _row(report: Report) -> tuple[str, ...]:
    load = report.load
    told = ("-", "-", "-")
    if load is not None:
        pages = f"{load.num_pages - load.free_pages}/{load.num_pages}"
        told = (f"{load.num_sessions}/{load.max_sessions}", pages, f"{1000 * load.round_s:.0f} ms")
    return (report.name, report.endpoint, report.state, *told, str(report.num_restarts))


def _find(name: str) -> tuple[Folder, Record]:
    """Returns the fleet of that name; ConfigError when none is up."""
    checks.require_ray()
    folder = Folder(name)
    if (record := folder.record()) is None:
        others = sorted(path.parent.name for path in folder.path.parent.glob("*/fleet.json"))
        known = f"; up are: {', '.join(others)}" if others else "; start one with `goodspeed-fleet up`"
        raise ConfigError(f"no fleet {name!r} is up{known}")
    return folder, record


@contextmanager
def _fleet(folder: Folder, record: Record) -> Iterator["Fleet"]:
    """Connects to a fleet for the length of a block; ProcessError when its Ray is gone."""
    if not head.answers(record.address):
        raise ProcessError(
            f"the Ray of the fleet {record.plan.name} is gone, at {record.address}; its replicas go on. "
            "Start it again with `goodspeed-fleet up`, which takes them over, or end them with `goodspeed-fleet down`"
        )
    with connected(folder, record) as handles:
        yield handles.Fleet.find()


@contextmanager
def connected(folder: Folder, record: Record) -> Iterator[ModuleType]:
    """Connects to a fleet's Ray for the length of a block, which gets the module `handles`."""
    if record.head is not None:
        os.environ.update(head.settings(folder))  # Ray reads them when it is imported
    from goodspeed.app.fleet.cluster import handles

    with handles.connected(record.plan.name, record.address):
        yield handles
