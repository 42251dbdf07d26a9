"""A fleet on a real Ray lives through deaths, of Ray too, grows when it is full, and leaves nothing when it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from goodspeed.app.fleet.keeping import processes
from goodspeed.app.fleet.keeping.folders import Folder
from goodspeed.app.fleet.keeping.processes import Ran
from tests.nodes import DEADLINE_S, ENVIRONMENT, ROOT, DraftNode

pytestmark = [pytest.mark.alone, pytest.mark.slow_faults]

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}

EVERYTHING = [""]
"""A mark of every command line."""


class Command:
    """`goodspeed-fleet`, with a state folder of its own."""

    def __init__(self, state: Path) -> None:
        self._environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(state)}

    def __call__(self, *words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "goodspeed.app.fleet", *words]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def replicas(self) -> dict[str, dict[str, Any]]:
        told = json.loads(self("status", "--json"))
        return {replica["name"]: replica for replica in told["replicas"]}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = Command(tmp_path)
    yield command
    if Folder("default").record() is not None:
        command("down", "--timeout-s", "1")


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def all_processes() -> tuple[list[Ran], list[Ran]]:
    """Ray's processes, and the nodes'."""
    folder = Folder("default")
    nodes = [ran for replica in folder.replicas().values() if (ran := replica.running()) is not None]
    return processes.of_session(folder.record().head.session, EVERYTHING), nodes


def kill(running: list[Ran], mark: str) -> list[int]:
    """Kills those whose command line has the mark."""
    killed = []
    for ran in running:
        with suppress(OSError):  # Ray ends workers that it has no work for
            if mark in Path(f"/proc/{ran.pid}/cmdline").read_text() and processes.send(ran, signal.SIGKILL):
                killed.append(ran.pid)
    return killed


def listening(running: list[Ran]) -> list[str]:
    """The addresses, as the kernel writes them, at which any of them listens."""
    sockets = set()
    for ran in running:
        for descriptor in Path(f"/proc/{ran.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                sockets.add(str(descriptor.readlink()))
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def back(replicas: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """The replicas, once the first was started again and is ready."""
    first = replicas["replica-1"]
    return replicas if (first["restarts"], first["state"]) == (1, "ready") else None


def all_ready(fleet: Command) -> dict[str, dict[str, Any]] | None:
    """Both replicas, once both are reported as ready; nobody answers while the roster is away."""
    try:
        replicas = fleet.replicas()
    except AssertionError:
        return None
    return replicas if [one["state"] for one in replicas.values()] == ["ready", "ready"] else None


def tells(name: str) -> bool:
    """Waits until a replica writes its status file anew."""
    status = Folder("default").replica(name).status
    before = status.stat().st_mtime_ns
    return bool(until(lambda: status.stat().st_mtime_ns > before))


def test_a_fleet_lives_through_the_deaths_of_its_parts_and_leaves_nothing(fleet: Command) -> None:
    words = ("up", "--model", "tiny-target", "--replicas", "2", "--port", "0", "--json")
    told = json.loads(fleet(*words))
    assert list(told["replicas"]) == ["replica-1", "replica-2"]
    assert told["endpoints"] == [*told["replicas"].values()]
    first = fleet.replicas()
    assert {replica["state"] for replica in first.values()} == {"ready"}
    assert {name: replica["endpoint"] for name, replica in first.items()} == told["replicas"]
    assert "is up already" in fleet(*words, status=2)

    of_ray, nodes = all_processes()
    assert len(addresses := listening(of_ray)) >= 5
    assert set(addresses) <= LOOPBACK

    os.kill(first["replica-1"]["pid"], signal.SIGKILL)
    running = until(lambda: back(fleet.replicas()))
    assert running["replica-1"]["endpoint"] == first["replica-1"]["endpoint"]
    assert running["replica-2"]["pid"] == first["replica-2"]["pid"]

    assert len(kill(of_ray, "KeeperActor")) == 2
    assert len(kill(of_ray, "RosterActor")) == 1
    adopted = until(lambda: all_ready(fleet))
    assert {name: replica["pid"] for name, replica in adopted.items()} == {
        name: replica["pid"] for name, replica in running.items()
    }

    of_ray, nodes = all_processes()
    kill(of_ray, "gcs_server")
    kill(of_ray, "raylet/raylet")
    assert all(tells(name) for name in running)
    assert "Ray of the fleet default is gone" in fleet("scale", "3", status=1)
    assert {replica["state"] for replica in fleet.replicas().values()} == {"ready"}

    fleet("down", "--timeout-s", "10")
    assert len(nodes) == 2
    until(lambda: not any(processes.is_running(ran) for ran in (*of_ray, *nodes)))
    assert not Folder("default").path.exists()
    assert "no fleet 'default' is up" in fleet("status", status=2)


def test_a_fleet_grows_when_it_is_full_and_takes_texts_at_once(fleet: Command) -> None:
    words = ("up", "--model", "tiny-target", "--replicas", "1", "--max-replicas", "2", "--port", "0", "--json", "--")
    told = json.loads(fleet(*words, "--max-sessions", "2"))
    drafts_none = ("--model", "none", "--tokenizer", "tiny-target", "--http", "127.0.0.1:0")
    with DraftNode(told["endpoints"][0], *drafts_none) as node, ThreadPoolExecutor(4) as users:
        node.wait_until_ready()
        has_grown = threading.Event()
        texts = [users.submit(write_until, has_grown, node.url, seed) for seed in range(4)]
        try:
            grown = until(lambda: all_ready(fleet))
            until(lambda: min(replica["sessions"] for replica in fleet.replicas().values()))
        finally:
            has_grown.set()
        assert sum(text.result() for text in texts) > 0
    assert list(grown) == ["replica-1", "replica-2"]


def write_until(enough: threading.Event, url: str, seed: int) -> int:
    """Has texts written one after the other; returns how many."""
    num_texts = 0
    body = {"prompt": "The river", "max_tokens": 300, "seed": seed, "ignore_eos": True}
    while not enough.is_set():
        answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=DEADLINE_S).raise_for_status()
        assert answer.json()["usage"]["completion_tokens"] == 300
        num_texts += 1
    return num_texts
