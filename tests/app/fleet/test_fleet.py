"""A fleet on a real Ray lives through deaths, of Ray too, and leaves nothing when it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from goodspeed.app.fleet import head
from tests.faults.texts import begin, check_all, mixed
from tests.nodes import DEADLINE_S, ENVIRONMENT, ROOT, DraftNode

pytestmark = [pytest.mark.alone, pytest.mark.slow_faults]

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
WANTED = mixed(900)[:2]
UP = ("up", "--model", "tiny-target", "--json")


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
        return {replica["name"]: replica for replica in json.loads(self("status", "--json"))["replicas"]}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = Command(tmp_path)
    yield command
    if head.find("default") is not None:
        command("down", "--timeout-s", "1")


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def of_ray() -> dict[int, str]:
    """The command lines of all processes of the fleet's Ray, which are one session, by their ids."""
    record, found = head.find("default"), {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) == record.pid and (line := (entry / "cmdline").read_text()):
                found[int(entry.name)] = line
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def have_ended(pids: Iterable[int]) -> None:
    until(lambda: not any(map(is_running, pids)))


def listening(pids: Iterable[int]) -> list[str]:
    """The addresses, as the kernel writes them, at which any of them listens."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                sockets.add(str(descriptor.readlink()))
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def all_ready(fleet: Command) -> dict[str, dict[str, Any]] | None:
    """Both replicas, once both are reported as ready; nobody answers while the keeper of the table is away."""
    try:
        replicas = fleet.replicas()
    except AssertionError:
        return None
    return replicas if [one["state"] for one in replicas.values()] == ["ready", "ready"] else None


def free_ports() -> int:
    """The first of two ports that are free, one after the other."""
    while True:
        with socket.socket() as one, socket.socket() as other, suppress(OSError, OverflowError):
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", one.getsockname()[1] + 1))
            return int(one.getsockname()[1])


def test_texts_go_on_through_the_deaths_of_a_replica_of_the_keeper_and_of_ray(fleet: Command) -> None:
    words = (*UP, "--replicas", "2", "--port", str(free_ports()))
    told = json.loads(fleet(*words))
    assert list(told["replicas"]) == ["replica-1", "replica-2"]
    assert told["endpoints"] == [*told["replicas"].values()]
    first = fleet.replicas()
    assert {name: replica["endpoint"] for name, replica in first.items()} == told["replicas"]
    assert "is already running" in fleet(*words, status=2)
    home, other = told["endpoints"]
    with DraftNode(home, "--verify", other, "--connect-timeout-s", str(DEADLINE_S)) as draft:
        draft.wait_until_ready()
        streams = begin(draft.url, WANTED)
        os.kill(first["replica-1"]["pid"], signal.SIGKILL)
        check_all(streams)
        back = until(lambda: (found := fleet.replicas())["replica-1"]["restarts"] and all_ready(fleet) and found)
        assert back["replica-1"]["endpoint"] == first["replica-1"]["endpoint"]
        assert back["replica-2"]["pid"] == first["replica-2"]["pid"]

        [keeper] = [pid for pid, line in of_ray().items() if "ray::Fleet" in line]
        os.kill(keeper, signal.SIGKILL)
        after = until(lambda: all_ready(fleet))
        assert [one["pid"] for one in after.values()] == [one["pid"] for one in back.values()]

        streams, record, died = begin(draft.url, WANTED), head.find("default"), of_ray()
        assert record.pid is not None
        os.kill(record.pid, signal.SIGKILL)
        have_ended(pid for pid, line in died.items() if "ray::Node" in line)
        assert not any(stream.is_over for stream in streams)
        assert "Ray of the fleet default is gone" in fleet("scale", "3", status=1)
        assert json.loads(fleet("status", "--json")) == {"fleet": "default", "ray": False, "replicas": []}
        assert json.loads(fleet(*words))["endpoints"] == told["endpoints"]
        check_all(streams)

    left = of_ray()
    fleet("down", "--timeout-s", "10")
    have_ended(left)
    assert not head.folder("default").exists()
    assert "no fleet 'default' is up" in fleet("status", status=2)


def test_a_replica_hangs_or_leaves_and_ray_listens_on_loopback_only(fleet: Command) -> None:
    told = json.loads(fleet(*UP, "--replicas", "2", "--port", "0"))
    assert len(addresses := listening(of_ray())) >= 5
    assert set(addresses) <= LOOPBACK
    hangs = fleet.replicas()["replica-1"]["pid"]
    os.kill(hangs, signal.SIGSTOP)
    until(lambda: fleet.replicas()["replica-1"]["restarts"])
    have_ended([hangs])
    until(lambda: all_ready(fleet))
    with DraftNode(told["replicas"]["replica-2"]) as draft:
        draft.wait_until_ready()
        streams = begin(draft.url, WANTED)
        fleet("drain", "replica-2")
        check_all(streams)
        draft.wait_for_metric("redirected_total", lambda number: number >= 1)
    assert list(fleet.replicas()) == ["replica-1"]
    fleet("scale", "2")
    assert list(all_ready(fleet) or ()) == ["replica-1", "replica-2"]
