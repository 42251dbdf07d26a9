"""The supervisor of one replica, without Ray, over a stand-in for the node: deaths, hangs, adoption, leaving."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from goodspeed.app.fleet.keeping import keeper as keeping
from goodspeed.app.fleet.keeping import processes
from goodspeed.app.fleet.keeping.folders import ReplicaFolder
from goodspeed.app.fleet.keeping.keeper import Keeper, Report
from goodspeed.app.fleet.keeping.plan import Plan
from goodspeed.app.fleet.keeping.processes import Ran, Seen
from goodspeed.fleet import table as peers
from goodspeed.fleet.replicas import Replica
from goodspeed.fleet.table import Table

pytestmark = pytest.mark.alone

NAME, ADDRESS, HUNG_S = "replica-1", "10.0.0.7", 1.0
PLAN = Plan(name="test", model="fake", replicas=1, max_replicas=1, port=0)
DEADLINE_S = 30.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicaFolder]:
    """A replica's folder; whatever runs in it ends with the test."""

    def command(words: list[str]) -> list[str]:
        return [sys.executable, "-m", "tests.app.fleet.fake_node", *words]

    monkeypatch.setattr(keeping, "verify_command", command)
    folder = ReplicaFolder(tmp_path / NAME)
    yield folder
    if ran := folder.running():
        processes.send(ran, signal.SIGKILL)


def keep(folder: ReplicaFolder, plan: Plan = PLAN) -> Keeper:
    return Keeper(plan, NAME, folder, ADDRESS, time.monotonic(), hung_s=HUNG_S)


def until(keeper: Keeper, holds: Callable[[Report], bool]) -> Report:
    """Steps the keeper until its report is as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds(report := keeper.step(time.monotonic())):
        assert time.monotonic() < deadline, report
        time.sleep(0.02)
    return report


def its(folder: ReplicaFolder) -> Ran:
    """The process that runs."""
    ran = folder.running()
    assert ran is not None
    return ran


def seen(report: Report) -> Seen | None:
    return processes.look(report.pid or 0)


def ready(report: Report) -> bool:
    return report.state == "ready"


def test_it_starts_a_process_that_is_nobodys_child(folder: ReplicaFolder) -> None:
    keeper = keep(folder)
    first = keeper.step(time.monotonic())
    assert (first.state, first.num_restarts) == ("starting", 0)
    assert peers.read(folder.peers).replicas == (Replica(NAME, first.endpoint),)  # before anybody else is known
    report = until(keeper, ready)
    assert seen(report).session == report.pid
    assert seen(report).parent != os.getpid()
    assert report.load.max_sessions == 8
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_a_death_is_followed_by_a_start_on_the_same_port(folder: ReplicaFolder) -> None:
    keeper = keep(folder)
    before = until(keeper, ready)
    processes.send(its(folder), signal.SIGKILL)
    after = until(keeper, lambda report: ready(report) and report.pid != before.pid)
    assert (after.endpoint, after.num_restarts) == (before.endpoint, 1)


@pytest.mark.parametrize("stop", [False, True], ids=["silent", "stopped"])
def test_a_hang_is_killed_and_started_again(folder: ReplicaFolder, stop: bool) -> None:
    keeper = keep(folder)
    before = until(keeper, ready)
    if stop:
        processes.send(its(folder), signal.SIGSTOP)
    else:
        (folder.path / "hang").touch()
    began = time.monotonic()
    until(keeper, lambda report: report.pid != before.pid)
    assert time.monotonic() - began >= HUNG_S - 0.2
    (folder.path / "hang").unlink(missing_ok=True)
    assert "told nothing for 1 s" in until(keeper, ready).why


def test_a_keeper_that_comes_back_adopts_the_process(folder: ReplicaFolder) -> None:
    before = until(keep(folder), ready)
    again = keep(folder)
    report = until(again, ready)
    assert (report.pid, report.endpoint, report.num_restarts) == (before.pid, before.endpoint, 0)
    processes.send(its(folder), signal.SIGKILL)
    until(again, lambda report: ready(report) and report.pid != before.pid)


def test_a_process_that_was_started_otherwise_is_not_adopted(folder: ReplicaFolder) -> None:
    before = until(keep(folder), ready)
    report = until(keep(folder, replace(PLAN, further=("--budget=3",))), ready)
    assert report.pid != before.pid
    assert seen(before) is None


def test_another_process_with_its_id_is_left_alone(folder: ReplicaFolder) -> None:
    report = until(keep(folder), ready)
    ran = its(folder)
    other = replace(ran, ticks=ran.ticks + 1)
    assert not processes.is_running(other)
    assert not processes.send(other, signal.SIGKILL)
    assert not processes.is_running(replace(ran, boot="another"))
    assert seen(report) is not None


def test_a_start_that_fails_says_why_and_is_tried_again_later(folder: ReplicaFolder) -> None:
    folder.path.mkdir()
    (folder.path / "fail").touch()
    keeper = keep(folder)
    report = until(keeper, lambda report: report.state == "failing")
    assert report.why == "no memory / fake: cannot start"
    began = time.monotonic()
    until(keeper, lambda report: report.num_restarts == 1)
    assert time.monotonic() - began >= keeping.PATIENCE_S[0] - 0.2
    (folder.path / "fail").unlink()
    until(keeper, ready)


def test_who_leaves_is_not_started_again(folder: ReplicaFolder) -> None:
    keeper = keep(folder)
    until(keeper, ready)
    keeper.drain(time.monotonic())
    until(keeper, lambda report: report.state == "left")
    assert keeper.step(time.monotonic() + 100).state == "left"
    assert not folder.path.exists()


def test_who_does_not_leave_in_time_is_killed(folder: ReplicaFolder) -> None:
    keeper = keep(folder)
    until(keeper, ready)
    processes.send(its(folder), signal.SIGSTOP)
    keeper.drain(time.monotonic(), timeout_s=0.2)
    assert keeper.step(time.monotonic()).state == "draining"
    until(keeper, lambda report: report.state == "left")


def test_the_table_goes_to_the_process_if_it_is_in_it(folder: ReplicaFolder) -> None:
    keeper = keep(folder)
    mine = until(keeper, ready).replica
    table = Table((Replica("replica-2", "tcp://10.0.0.8:1"), mine))
    keeper.write_peers(table)
    assert peers.read(folder.peers) == table
    keeper.write_peers(Table((Replica("replica-2", "tcp://10.0.0.8:1"),)))
    assert peers.read(folder.peers) == table


def test_where_it_is_reached(folder: ReplicaFolder) -> None:
    everywhere = replace(PLAN, host="0.0.0.0", port=7000)
    assert keep(folder, everywhere).endpoint == f"tcp://{ADDRESS}:7000"
    assert keep(folder, replace(everywhere, host="127.0.0.1")).endpoint == "tcp://127.0.0.1:7000"


def test_processes_of_a_session_are_found_by_a_mark() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)  # a-mark"]
    with subprocess.Popen(command, start_new_session=True) as marked:
        found = processes.of_session(marked.pid, ["a-mark"])
        assert [ran.pid for ran in found] == [marked.pid]
        assert processes.of_session(marked.pid, ["another"]) == []
        assert processes.of_session(marked.pid + 1, ["a-mark"]) == []
        processes.end(found, grace_s=30.0)
        assert marked.wait(30.0) == -signal.SIGTERM
