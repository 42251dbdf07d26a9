"""`goodspeed-fleet`: starts several verify nodes with Ray, and reports their state; see docs/FLEET.md.

Starts fast: imports Ray only when needed, and torch never.
"""

import argparse
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module  # noqa: TID251 of a node, which goodspeed imports by no other way
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from goodspeed.app.fleet import head
from goodspeed.app.fleet.head import Record
from goodspeed.app.fleet.options import NAME, WHAT_NAME, WILDCARDS, UpConfig
from goodspeed.errors import ConfigError, ProcessError, need, reason
from goodspeed.fleet.keeping import free_names, number_of
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.serving import running
from goodspeed.serving.config import add_options, from_namespace, group_of
from goodspeed.serving.events import Reporter, print_json
from goodspeed.serving.parser import CommandLine

PROGRAM, POLL_S, ANSWER_S = "goodspeed-fleet", 0.5, 30.0
INSTEAD = {"bind": "give --host and --port before it", "peers": "the fleet keeps the table of its replicas"}
"""What to do in place of an option of goodspeed-verify that the fleet decides."""

Ask: TypeAlias = Callable[..., Any]
"""Calls a method of the fleet's `Fleet` actor, and returns its answer."""


def main() -> int:
    return running.run(PROGRAM, build_parser(), _run)


def _run(namespace: argparse.Namespace) -> int:
    need(f"`{PROGRAM}`", "ray", "ray")
    namespace.body(namespace, Reporter(PROGRAM))
    return 0


def build_parser() -> argparse.ArgumentParser:
    about = "Several verify nodes of one model: started with Ray, watched over, added and ended."
    parser = CommandLine(prog=PROGRAM, description=about, example=f"{PROGRAM} up --model tiny-target", version=True)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    words = {up: " --model tiny-target --replicas 2 -- --budget 28", drain: " replica-2", scale: " 3"}
    added: dict[Callable[..., None], CommandLine] = {}
    for body in (up, status, drain, scale, down):
        name, what = body.__name__, str(body.__doc__)
        example = f"{PROGRAM} {name}{words.get(body, '')}"
        added[body] = chosen.add_parser(name, help=what.partition(".")[0].lower(), description=what, example=example)
        added[body].set_defaults(body=body)
        if body is not up:
            added[body].add_argument("--name", default="default", help=f"{WHAT_NAME} (default: default)")
        if body in (up, status):
            running.add_common_options(added[body])
    add_options(added[up], UpConfig)
    group_of(added[up], "fleet").add_argument("further", nargs="*", metavar="-- OPTIONS", help="of goodspeed-verify")
    added[drain].add_argument("replica", metavar="NAME", help="the replica's name, of `goodspeed-fleet status`")
    added[scale].add_argument("number", type=int, metavar="N", help="replicas that there should be")
    what = "replicas that have not left after so many seconds are killed (default: 30)"
    added[down].add_argument("--timeout-s", type=float, default=30.0, metavar="S", help=what)
    return parser


def up(namespace: argparse.Namespace, reporter: Reporter) -> None:
    """Start a fleet. Returns when every replica is ready; the fleet goes on by itself."""
    config = from_namespace(UpConfig, namespace)
    config.check_ports(config.replicas)
    record = Record(config, tuple(namespace.further), str(Path.cwd()), config.address or "")
    _check(record, reporter)
    with _only_one(config.name):
        if (before := _remains(config.name)) is not None:
            head.end(before)
        try:
            reporter.say("starting %d replicas of %s ...", config.replicas, config.model)
            record = record.keep() if config.address is not None else head.start(record)
            with _asking(record) as ask:
                endpoints = _scale(ask, config.replicas, reporter)
        except BaseException:
            with suppress(ProcessError):  # a consequence of the first error
                _end(config.name, 0.0)
            raise
    if namespace.json:
        found = {"endpoints": [*endpoints.values()], "replicas": endpoints}
        print_json({**found, "address": record.address, "folder": str(record.path)})
    else:
        print("\n".join(endpoints.values()))


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Lets one `up` of a fleet of this name run at a time. ConfigError if another one does."""
    path = head.folder(name).parent / f".{name}.lock"  # it stays: who removed it might remove another's
    with ExitStack() as closing:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = closing.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, if not before
        except BlockingIOError:
            what = f"another `{PROGRAM} up` is starting the fleet {name}; wait for it, or give another --name"
            raise ConfigError(what) from None
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {reason(error)}; set XDG_STATE_HOME to another") from None
        yield


def _check(record: Record, reporter: Reporter) -> None:
    """Raises ConfigError for a fleet that cannot be started."""
    config = record.config
    _remains(config.name)
    if config.address is None and config.host in WILDCARDS:
        what = "draft nodes learn this address of each replica from the others"
        raise ConfigError(f"--host {config.host}: {what}; give the address by which they reach this machine")
    if config.address is not None and not record.is_there:
        raise ConfigError(f"--address {config.address}: nobody listens there; `ray start --head` tells its address")
    verify = import_module("verify_node.cli")
    for number in range(1, config.replicas + 1):
        port = config.port and config.port + number - 1
        settings = verify.settings(record.words(port, number))
        if config.num_gpus and settings.device == "cpu":
            what = f"Ray would reserve {config.num_gpus} GPUs for each replica, which would compute on the CPU"
            raise ConfigError(f"{what}; add `-- --device cuda`, or give --gpus 0")
        for name, value in record.fixed(port, number).items():
            if getattr(settings, name) != value:
                raise ConfigError(
                    f"--{name} cannot be given after `--`; {INSTEAD.get(name, f'give --{name} before it')}"
                )
        page = settings.http if config.http is None else None
        if page is not None and not page.endswith(":0"):
            raise ConfigError(f"--http {page} after `--` is one port for all replicas; give --http before it")
        if config.address is None:
            verify.check_here(settings, reporter)


def _remains(name: str) -> Record | None:
    """Returns a fleet of that name whose Ray is gone; None if there is none. ConfigError if it is up."""
    if (before := head.find(name)) is not None and before.is_there:
        _refuse_starting(before)
        raise ConfigError(f"the fleet {name} is already running; end it with `{PROGRAM} down`, or give another --name")
    return before


def status(namespace: argparse.Namespace, reporter: Reporter) -> None:
    """Print what each replica does."""
    record = _find(namespace.name)
    _refuse_starting(record)
    replicas: list[dict[str, Any]] = []
    if is_there := record.is_there:
        with _asking(record) as ask:
            replicas = ask("status")
    else:
        reporter.say("Ray is gone, and its replicas with it; `goodspeed-fleet up` starts them again")
    if namespace.json:
        print_json({"fleet": namespace.name, "ray": is_there, "replicas": replicas})
    for one in () if namespace.json else replicas:
        print("  ".join(f"{key} {value}" for key, value in one.items() if value not in (None, "")))


def drain(namespace: argparse.Namespace, reporter: Reporter) -> None:
    """Remove a replica. Waits until it has drained and left."""
    with _asking(_find(namespace.name)) as ask:
        states = {one["name"]: one["state"] for one in ask("status")}
        if namespace.replica not in states:
            raise ConfigError(f"no replica is called {namespace.replica!r}; choose one of: {', '.join(states)}")
        others = {state for name, state in states.items() if name != namespace.replica} - {"draining"}
        if not others or (states[namespace.replica] == "ready" and "ready" not in others):
            raise ConfigError(f"{namespace.replica} is the last one that serves; end the fleet with `{PROGRAM} down`")
        ask("drain", namespace.replica)
        while namespace.replica in [one["name"] for one in ask("status")]:
            time.sleep(POLL_S)
    reporter.say("%s has left", namespace.replica)


def scale(namespace: argparse.Namespace, reporter: Reporter) -> None:
    """Set the number of replicas. Waits until new ones are ready, and others have left."""
    record = _find(namespace.name)
    config, number = record.config, namespace.number
    if not 1 <= number <= MAX_REPLICAS:
        raise ConfigError(f"the fleet {config.name} may have 1 to {MAX_REPLICAS} replicas, not {number}")
    config.check_ports(number)
    with _asking(record) as ask:
        there = ask("status")
        more = number - sum(one["state"] != "draining" for one in there)
        config.check_ports(max(map(number_of, free_names([one["name"] for one in there], more)), default=1))
        _scale(ask, number, reporter)


def down(namespace: argparse.Namespace, reporter: Reporter) -> None:
    """End a fleet, with everything that `up` started."""
    _end(_find(namespace.name).config.name, namespace.timeout_s)
    reporter.say("the fleet %s is down", namespace.name)


def _scale(ask: Ask, number: int, reporter: Reporter) -> dict[str, str]:
    """Sets the number of replicas; returns their endpoints when all are ready. ProcessError as soon as one fails."""
    told: dict[str, str] = {}
    ask("scale", number)
    while len(found := ask("status")) != number or any(one["state"] != "ready" for one in found):
        for one in found:
            if told.get(one["name"]) != one["state"]:
                told[one["name"]] = one["state"]
                reporter.say("%s is %s", one["name"], one["state"])
            if one["state"] == "failing" and len(found) <= number:  # else it may be one that leaves
                raise ProcessError(f"{one['name']} did not start: {one['why']}")
        time.sleep(POLL_S)
    return {one["name"]: one["endpoint"] for one in found}


def _end(name: str, timeout_s: float) -> None:
    """Drains all replicas, or kills them after timeout_s; then ends the fleet's own Ray, and removes the record.

    ProcessError if the user's Ray does not answer: the replicas may go on, so that the record stays.
    """
    if (record := head.find(name)) is None:
        return
    try:
        with suppress(ConfigError), _asking(record) as ask:  # ConfigError: another's fleet, which is left alone
            deadline = time.monotonic() + timeout_s
            for one in ask("status") if timeout_s else ():
                ask("drain", one["name"], timeout_s)
            while time.monotonic() < deadline and ask("status"):
                time.sleep(POLL_S)
            ask("end")
    except ProcessError as error:
        if record.pid is None:
            raise ProcessError(f"{error}; if its replicas have ended, remove {record.path}") from None
    head.end(record)
    shutil.rmtree(record.path, ignore_errors=True)


def _find(name: str) -> Record:
    """Returns the record of that fleet; ConfigError if none is up."""
    record = head.find(name) if re.fullmatch(NAME, name) else None
    if record is None:
        raise ConfigError(f"no fleet {name!r} is up; start one with `{PROGRAM} up`")
    return record


def _refuse_starting(record: Record) -> None:
    """Raises ConfigError for a fleet whose own Ray has not told its address yet."""
    if not record.address and (record.pid is None or record.is_there):
        raise ConfigError(f"the fleet {record.config.name} is starting; wait for `{PROGRAM} up`, or end it with `down`")


@contextmanager
def _asking(record: Record) -> Iterator[Ask]:
    """Connects to a fleet's Ray for the duration of a block."""
    name = record.config.name
    _refuse_starting(record)
    if not record.is_there:
        raise ProcessError(f"the Ray of the fleet {name} is gone; start it again with `{PROGRAM} up`")
    if record.pid is not None:
        os.environ.update(record.settings)  # Ray reads them when it is imported
    import ray

    from goodspeed.app.fleet import actors

    try:
        quiet: Any = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        ray.init(record.address, namespace=f"goodspeed-{name}", **quiet)
        fleet = actors.begin(actors.Fleet, actors.FLEET, msgspec.json.encode(record), num_cpus=0)
        if msgspec.json.decode(ray.get(fleet.record.remote(), timeout=ANSWER_S), type=Record) != record:
            raise ConfigError(
                f"the Ray at {record.address} has another fleet {name}, with other options or of another folder; "
                "end that one where it was started, or give another --name"
            )

        def ask(method: str, *words: Any) -> Any:
            try:
                return json.loads(ray.get(getattr(fleet, method).remote(*words), timeout=ANSWER_S) or "0")
            except ray.exceptions.ActorDiedError:
                if method != "end":  # which has no other answer
                    raise
                return None

        yield ask
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        words = str(error).strip().partition("\n")[0][:200]
        raise ProcessError(f"the fleet {name} does not answer at {record.address}: {words}; see `ray status`") from None
    finally:
        ray.shutdown()
