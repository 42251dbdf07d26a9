"""The keepers and the roster as Ray's actors. They give each other JSON as bytes, and nothing else.

All of them are detached and restarted by Ray. What the roster forgets when it is restarted, the keepers report again
within a second; which keepers there are, Ray knows.
"""

import logging
import threading
import time
from typing import Any

import msgspec
import ray
from ray.util import get_node_ip_address, list_named_actors, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from goodspeed.app.fleet.keeping.folders import Folder
from goodspeed.app.fleet.keeping.keeper import DRAIN_S, Keeper, Report
from goodspeed.app.fleet.keeping.plan import Plan
from goodspeed.app.fleet.keeping.roster import Roster, new_names
from goodspeed.fleet.table import Table

logger = logging.getLogger("goodspeed.fleet")

ROSTER = "roster"
STEP_S = 1.0
ANSWER_S = 5.0

KEEP_FOREVER = {"lifetime": "detached", "max_restarts": -1}


def namespace(fleet: str) -> str:
    """Returns the names' space of a fleet's actors in Ray."""
    return f"goodspeed-{fleet}"


class RosterActor:
    """The one `Roster` of a fleet, which adds and ends keepers."""

    def __init__(self, plan: bytes) -> None:
        self._plan = msgspec.json.decode(plan, type=Plan)
        self._roster = Roster(self._plan)

    def report(self, report: bytes) -> bytes:
        """A keeper tells what it knows; returns the table."""
        told = msgspec.json.decode(report, type=Report)
        now = time.monotonic()
        self._roster.hear(told, now, time.time())
        table = self._roster.table(now)
        if told.state == "left":
            self._retire(told.name)
        elif (wanted := self._roster.wanted(num := len(self._names()), now)) is not None:
            self._change(wanted - num, now)
        return msgspec.json.encode(table)

    def status(self) -> bytes:
        """Returns all reports, and the names of keepers that have not reported yet."""
        return msgspec.json.encode((self._roster.reports(time.monotonic()), self._names()))

    def scale(self, number: int) -> None:
        """Adds as many replicas as are missing, or has the least busy ones leave."""
        self._change(number - len(self._names()), time.monotonic())

    def drain(self, name: str, timeout_s: float = DRAIN_S) -> None:
        """Has a replica leave, or be killed after timeout_s; it is forgotten when it has left."""
        keeper: Any = ray.get_actor(name)
        keeper.drain.remote(timeout_s)

    def _change(self, by: int, now: float) -> None:
        for name in new_names(self._names(), by):
            self._add(name)
        for name in self._roster.least_busy(now, max(0, -by)):
            self.drain(name)

    def _add(self, name: str) -> None:
        """Its resources are kept for it while it is away, and where they are: its process is still there."""
        plan = self._plan
        bundle = {"CPU": float(plan.cpus)} | ({"GPU": float(plan.gpus)} if plan.gpus else {})
        group = _group(name) or placement_group([bundle], strategy="STRICT_PACK", name=name, lifetime="detached")
        options = KEEP_FOREVER | {"name": name, "num_cpus": plan.cpus, "num_gpus": plan.gpus}
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0)
        actor: Any = ray.remote(KeeperActor)
        actor.options(**options, scheduling_strategy=strategy).remote(msgspec.json.encode(plan), name)

    def _retire(self, name: str) -> None:
        self._roster.forget(name)
        forget_keeper(name)

    def _names(self) -> list[str]:
        return [name for name in list_named_actors() if name != ROSTER]


class KeeperActor:
    """A `Keeper` with a thread that steps it, and tells the roster; without the roster it goes on."""

    def __init__(self, plan: bytes, name: str) -> None:
        told = msgspec.json.decode(plan, type=Plan)
        folder = Folder(told.name)
        folder.make()
        self._keeper = Keeper(told, name, folder.replica(name), get_node_ip_address(), time.monotonic())
        threading.Thread(target=self._watch, daemon=True).start()

    def drain(self, timeout_s: float) -> None:
        self._keeper.drain(time.monotonic(), timeout_s)

    def _watch(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self._tell(self._keeper.step(began))
            except Exception:  # a full disk, Ray's head gone: none of it may end the watch
                logger.exception("a step of the keeper failed", extra={"replica": self._keeper.name})
            time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))

    def _tell(self, report: Report) -> None:
        roster: Any = ray.get_actor(ROSTER)
        table = ray.get(roster.report.remote(msgspec.json.encode(report)), timeout=ANSWER_S)
        if (known := msgspec.json.decode(table, type=Table | None)) is not None:
            self._keeper.write_peers(known)


def start_roster(plan: Plan) -> Any:
    """Starts the roster, which has no replica yet."""
    actor: Any = ray.remote(RosterActor)
    return actor.options(**KEEP_FOREVER, name=ROSTER, num_cpus=0).remote(msgspec.json.encode(plan))


def forget_keeper(name: str) -> None:
    """Ends a keeper, not what it keeps, and gives its resources back."""
    ray.kill(ray.get_actor(name), no_restart=True)
    if (group := _group(name)) is not None:
        remove_placement_group(group)


def _group(name: str) -> Any:
    """Returns the placement group of a replica, if it has one."""
    try:
        return ray.util.get_placement_group(name)
    except ValueError:
        return None
