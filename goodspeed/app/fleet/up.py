"""`goodspeed-fleet up`: starts a fleet, and returns when every replica is ready. It goes on by itself."""

import argparse
import time
from collections.abc import Callable

from goodspeed.app.fleet import checks
from goodspeed.app.fleet.cluster import head
from goodspeed.app.fleet.keeping.folders import Folder, Record
from goodspeed.app.fleet.keeping.keeper import Report
from goodspeed.app.fleet.keeping.plan import Plan, replica_name
from goodspeed.app.fleet.keeping.processes import end
from goodspeed.app.fleet.options import UpConfig
from goodspeed.app.fleet.others import connected, take_down
from goodspeed.command.config import add_options, from_namespace, group_of
from goodspeed.command.events import print_json
from goodspeed.command.reporter import Reporter
from goodspeed.command.running import add_common_options, warn_trusted_network
from goodspeed.errors import ConfigError, ProcessError

POLL_S = 0.5
LEAVE_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, UpConfig)
    add_common_options(parser)
    what = "further options of goodspeed-verify, for all replicas"
    group_of(parser, "fleet").add_argument("further", nargs="*", metavar="-- OPTIONS", help=what)


def run(namespace: argparse.Namespace, reporter: Reporter) -> int:
    config = from_namespace(UpConfig, namespace)
    checks.require_ray()
    plan = checks.make_plan(config, tuple(namespace.further))
    folder = Folder(plan.name)
    before = folder.record()
    if before is not None and head.answers(before.address):
        raise ConfigError(
            f"the fleet {plan.name} is up already; see `goodspeed-fleet status`, end it with `goodspeed-fleet down`, "
            "or give another --name"
        )
    if config.address is None:
        held = {one.port for found in folder.replicas().values() if found.running() and (one := found.started())}
        checks.check_machine(plan, held, reporter)
    else:
        reporter.say("looking for Ray at %s ...", config.address)
        checks.check_cluster(config.address)
    if plan.trusted_network:
        warn_trusted_network(plan.bind(plan.port))
    folder.make()
    _end_leftovers(folder, plan, before)
    try:
        reports = _start(config, plan, folder, reporter)
    except BaseException:
        take_down(folder, reporter, LEAVE_S)
        raise
    _tell(namespace, folder, reports, reporter)
    return 0


def _start(config: UpConfig, plan: Plan, folder: Folder, reporter: Reporter) -> list[Report]:
    """Starts everything; returns what is known of the replicas when all are ready."""
    if config.address is not None:
        record = Record(plan, config.address)
    else:
        reporter.say("starting Ray ...")
        record = Record(plan, *head.start(folder, plan))
    folder.keep(record)
    with connected(folder, record) as handles:
        reporter.say("starting %d replicas of %s ...", plan.replicas, plan.model)
        fleet = handles.Fleet.begin(plan)
        return wait_until_ready(fleet.reports, plan.replicas, reporter)


def wait_until_ready(
    look: Callable[[], tuple[list[Report], list[str]]], number: int, reporter: Reporter
) -> list[Report]:
    """Waits until as many replicas are ready, and no other is there; ProcessError as soon as one fails at its start."""
    told: dict[str, str] = {}
    while True:
        reports, names = look()
        for report in reports:
            if told.get(report.name) != report.state:
                told[report.name] = report.state
                reporter.say("%s at %s is %s", report.name, report.endpoint, report.state)
            if report.state == "failing":
                raise ProcessError(f"{report.name} did not start: {report.why}")
        if len(names) == number and [report.state for report in reports] == ["ready"] * number:
            return reports
        time.sleep(POLL_S)


def _end_leftovers(folder: Folder, plan: Plan, before: Record | None) -> None:
    """Ends what a Ray that is gone has left: all but replicas that the new one takes over."""
    if before is not None and before.head is not None:
        head.end(before.head)
    taken_over = {replica_name(number + 1) for number in range(plan.replicas)}
    others = [found for name, found in folder.replicas().items() if name not in taken_over]
    end([ran for found in others if (ran := found.running()) is not None], grace_s=LEAVE_S)


def _tell(namespace: argparse.Namespace, folder: Folder, reports: list[Report], reporter: Reporter) -> None:
    record = folder.record()
    endpoints = {report.name: report.endpoint for report in reports}
    if namespace.json:
        address = record.address if record is not None else None
        print_json(
            {"endpoints": [*endpoints.values()], "replicas": endpoints, "address": address, "folder": str(folder.path)}
        )
    else:
        print("\n".join(endpoints.values()))
    reporter.say("the fleet is up; it goes on until `goodspeed-fleet down`")
