"""The replicas of a fleet, and the keeper of their table, as Ray's actors. They tell each other JSON and no objects."""

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import msgspec
import ray
from msgspec.structs import replace
from ray.util import (
    get_node_ip_address,
    get_placement_group,
    list_named_actors,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from goodspeed.app.daemons import HOSTING
from goodspeed.app.fleet.options import Plan
from goodspeed.fleet.keeping import Report, Reports, free_names, number_of
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table
from goodspeed.wire.keys import read_verify_pair

FLEET = "fleet"
LOOK_S, AGAIN_S, DRAIN_S = 1.0, 5.0, 60.0
"""One that could not start is started again after AGAIN_S; one that has not left after DRAIN_S is ended."""


class Node:
    """A replica: this process serves as a verify node, and takes part in the fleet as the `Member` of it."""

    def __init__(self, fleet: Any, plan: bytes, name: str, port: int) -> None:
        self.name, self._fleet = name, fleet
        told = msgspec.json.decode(plan, type=Plan)
        os.chdir(told.folder)
        host = get_node_ip_address() if told.config.host in ("*", "0.0.0.0", "[::]") else told.config.host
        key = read_verify_pair(told.config.key).public_key if told.config.key is not None else None
        self._tell(Report(Replica(name, f"tcp://{host}:{port}", key), pid=os.getpid()))
        self._hosted = import_module(HOSTING).Hosted(told.words(port), self, self._failed)

    def look(self, load: Load) -> Sequence[Replica] | None:
        """Tells this load, and returns what the last one was answered with. Never waits, so that rounds go on."""
        told = self._told
        if not ray.wait([told], timeout=0)[0]:
            return None
        self._tell(replace(self._report, state="draining" if load.is_draining else "ready").with_load(load))
        with suppress(ray.exceptions.RayError):  # the keeper of the table is being restarted
            return msgspec.json.decode(ray.get(told), type=Table).replicas
        return None

    def drain(self, timeout_s: float) -> None:
        """Sends all sessions to other replicas, and ends this actor for good."""
        self._hosted.stop(timeout_s)
        ray.actor.exit_actor()

    def _failed(self, why: str) -> None:
        """Ends this process, which Ray starts again."""
        self._tell(replace(self._report, state="failing", why=why))
        time.sleep(AGAIN_S)
        os._exit(1)

    def _tell(self, report: Report) -> None:
        self._report, self._told = report, self._fleet.report.remote(msgspec.json.encode(report))


class Fleet:
    """Keeps the table, restarts replicas that hang, and has some come and go by their loads."""

    def __init__(self, plan: bytes) -> None:
        self._plan, self._config = plan, msgspec.json.decode(plan, type=Plan).config
        self._reports = Reports(self._config.replicas, self._config.max_replicas or 0)
        self._leaving: set[str] = set()
        self._own = ray.get_runtime_context().current_actor
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, report: bytes) -> bytes:
        """A replica tells what it does; returns the table."""
        now = time.monotonic()
        self._reports.hear(msgspec.json.decode(report, type=Report), now, time.time())
        return msgspec.json.encode(self._reports.table(now))

    def status(self) -> bytes:
        """Returns what `status --json` tells of each replica."""
        known = {one.replica.name: one for one in self._reports.known(time.monotonic())}
        return msgspec.json.encode([known.get(name, Report(Replica(name, ""))).told() for name in names()])

    def scale(self, number: int) -> None:
        """Adds as many replicas as are missing, or has the least busy ones leave."""
        found = [name for name in names() if name not in self._leaving]
        for name in free_names(names(), max(0, number - len(found))):
            self._add(name)
        for name in self._reports.least_busy(found, time.monotonic())[: max(0, len(found) - number)]:
            self.drain(name)

    def drain(self, name: str, timeout_s: float = DRAIN_S) -> None:
        """Has a replica leave, or ends it after timeout_s."""
        self._leaving.add(name)
        replica: Any = ray.get_actor(name)
        replica.drain.remote(timeout_s)

    def end(self) -> None:
        """Ends all replicas that are left, and this actor."""
        for name in names():
            ray.kill(ray.get_actor(name))
            _free(name)
        ray.actor.exit_actor()

    def _add(self, name: str) -> None:
        """Starts a replica. What it takes is of one machine, and stays reserved while it is restarted."""
        _free(name)
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = self._config.port + number_of(name) - 1 if self._config.port else int(probe.getsockname()[1])
        needs = self._config.resources
        group = placement_group([needs], strategy="STRICT_PACK", name=name, lifetime="detached")
        where = PlacementGroupSchedulingStrategy(group)
        of_group = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0), "scheduling_strategy": where}
        begin(Node, name, self._own, self._plan, name, port, **of_group)

    def _watch(self) -> None:
        while True:
            with suppress(ray.exceptions.RayError):  # a replica has ended meanwhile
                ray.get(self._own.look_after.remote())  # through Ray, which calls one method after the other
            time.sleep(LOOK_S)

    def look_after(self) -> None:
        """Looks for replicas that have left or hang, and at the loads."""
        found, now = names(), time.monotonic()
        for name in self._reports.forget_all_but(found):  # it has left
            self._leaving.discard(name)
            _free(name)
        for name in self._reports.hung(now):
            ray.kill(ray.get_actor(name), no_restart=name in self._leaving)
        if change := self._reports.change(len(found), now):
            self.scale(len(found) + change)


def begin(kind: type[Any], name: str, *arguments: Any, **options: Any) -> Any:
    """Starts an actor that outlives its caller and that Ray restarts whenever it ends, or finds one of that name."""
    fixed = {"name": name, "lifetime": "detached", "max_restarts": -1, "get_if_exists": True}
    return ray.remote(kind).options(**fixed, **options).remote(*arguments)


def names() -> list[str]:
    """Returns the replicas that Ray knows, in the order of their numbers."""
    return sorted((name for name in list_named_actors() if name != FLEET), key=number_of)


def _free(name: str) -> None:
    """Gives back what was reserved for a replica, if anything was."""
    with suppress(ValueError):
        remove_placement_group(get_placement_group(name))
