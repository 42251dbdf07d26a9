"""Ray actors: the replicas of a fleet, and the keeper of their table. They exchange JSON and no objects."""

import importlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import msgspec
import ray
from msgspec.structs import replace
from ray.util import get_node_ip_address, list_named_actors

from goodspeed.app.fleet.head import Record
from goodspeed.app.fleet.options import WILDCARDS
from goodspeed.errors import ConfigError
from goodspeed.fleet.keeping import Report, Reports, free_names, number_of
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table
from goodspeed.wire.keys import read_verify_pair

FLEET = "fleet"
LOOK_S, AGAIN_S, DRAIN_S, GRACE_S = 1.0, 5.0, 60.0, 5.0
"""Seconds between two checks; before a replica that failed to start is restarted; until a draining replica ends itself;
and for which it may be late, or silent when it is asked to drain."""


class Node:
    """A replica: this process serves as a verify node, and is its `Member` of the fleet."""

    def __init__(self, fleet: Any, record: bytes, name: str, port: int) -> None:
        self.name, self._fleet = name, fleet
        told = msgspec.json.decode(record, type=Record)
        host = get_node_ip_address() if told.config.host in WILDCARDS else told.config.host
        key, why = None, ""
        try:
            os.chdir(told.folder)
            key = read_verify_pair(told.config.key).public_key if told.config.key is not None else None
        except (OSError, ConfigError) as error:  # Ray would end this actor for good
            why = str(error)
        self._tell(Report(Replica(name, f"tcp://{host}:{port}", key), pid=os.getpid()))
        if why:
            self._failed(why)
        hosting = importlib.import_module("verify_node.hosting")  # noqa: TID251 goodspeed has no other way to a node
        self._hosted = hosting.Hosted(told.words(port, number_of(name)), self, self._failed)

    def look(self, load: Load) -> Sequence[Replica] | None:
        """Reports this load, and returns the answer to the previous report; None while that is pending. Never blocks
        rounds."""
        told = self._answer
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

    def _failed(self, why: str) -> NoReturn:
        """Ends this process; Ray restarts it."""
        self._tell(replace(self._report, state="failing", why=why))
        time.sleep(AGAIN_S)
        os._exit(1)

    def _tell(self, report: Report) -> None:
        self._report, self._answer = report, self._fleet.report.remote(msgspec.json.encode(report))


class Leaving(NamedTuple):
    """When a replica that has been asked to drain is killed."""

    report_at: float  # if it has not reported by then: Ray has had no room for it
    kill_at: float


class Fleet:
    """Keeps the table, and restarts hung replicas."""

    def __init__(self, record: bytes) -> None:
        self._record, self._config = record, msgspec.json.decode(record, type=Record).config
        self._reports = Reports()
        self._leaving: dict[str, Leaving] = {}  # by name
        self._own = ray.get_runtime_context().current_actor
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, report: bytes) -> bytes:
        """Takes a replica's report; returns the table."""
        now, told = time.monotonic(), msgspec.json.decode(report, type=Report)
        is_restarted = self._reports.hear(told, now, time.time())
        if is_restarted and told.replica.name in self._leaving:  # it died while it drained, and serves nobody yet
            with suppress(ValueError):  # Ray has dropped it already
                ray.kill(ray.get_actor(told.replica.name), no_restart=True)
        return msgspec.json.encode(self._reports.table(now))

    def record(self) -> bytes:
        """Returns the record that this fleet was started with."""
        return self._record

    def status(self) -> bytes:
        """Returns the replicas' `status --json` fields."""
        found = self._reports.told(names(), time.monotonic())
        leaving = {"state": "draining", "why": ""}  # also before a replica's next report
        return msgspec.json.encode([one | leaving if one["name"] in self._leaving else one for one in found])

    def scale(self, number: int) -> None:
        """Adds the missing replicas, or drains the least busy ones."""
        taken = names()
        staying = [name for name in taken if name not in self._leaving]
        for name in free_names(taken, number - len(staying)):
            self._add(name)
        for name in self._reports.least_busy(staying, time.monotonic())[: max(0, len(staying) - number)]:
            self.drain(name)

    def drain(self, name: str, timeout_s: float = DRAIN_S) -> None:
        """Drains a replica, or ends it after timeout_s; soon if it has no process."""
        now = time.monotonic()
        self._leaving[name] = Leaving(now + GRACE_S, now + timeout_s + GRACE_S)
        ray.get_actor(name).drain.remote(timeout_s)

    def end(self) -> None:
        """Ends all remaining replicas, and this actor."""
        for name in names():
            ray.kill(ray.get_actor(name))
        ray.actor.exit_actor()

    def _add(self, name: str) -> None:
        """Starts a replica on a machine with the resources that it needs."""
        config, port = self._config, self._config.port + number_of(name) - 1
        if not config.port:
            with socket.socket() as probe:
                probe.bind(("", 0))
                port = int(probe.getsockname()[1])
        begin(Node, name, self._own, self._record, name, port, num_cpus=1, num_gpus=config.num_gpus)

    def _watch(self) -> None:
        while True:
            with suppress(ray.exceptions.RayError):  # a replica has ended meanwhile
                ray.get(self._own.look_after.remote())  # through Ray, which runs one method at a time
            time.sleep(LOOK_S)

    def look_after(self) -> None:
        """Drops replicas that have left, and restarts hung ones."""
        found, now = names(), time.monotonic()
        self._reports.forget_all_but(found)
        self._leaving = {name: one for name, one in self._leaving.items() if name in found}
        late = [
            name
            for name, one in self._leaving.items()
            if now >= (one.kill_at if self._reports.has(name) else one.report_at)
        ]
        for name in {*late, *self._reports.hung(now)}:
            with suppress(ValueError):  # Ray has dropped it already
                ray.kill(ray.get_actor(name), no_restart=name in self._leaving)


def begin(kind: type[Any], name: str, *arguments: Any, **options: Any) -> Any:
    """Returns the actor of that name, or starts one. It outlives its caller, and Ray restarts it whenever it ends."""
    fixed = {"name": name, "lifetime": "detached", "max_restarts": -1, "get_if_exists": True}
    return ray.remote(kind).options(**fixed, **options).remote(*arguments)


def names() -> list[str]:
    """Returns the names of the replicas that Ray knows, in the order of their numbers."""
    return sorted((name for name in list_named_actors() if name != FLEET), key=number_of)
