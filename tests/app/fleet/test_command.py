"""What `goodspeed-fleet` says where it cannot do what it is told; nothing is started here."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from goodspeed.app.fleet import checks, cli
from goodspeed.app.fleet.cluster import head
from goodspeed.app.fleet.keeping.folders import Folder, Record
from goodspeed.app.fleet.keeping.keeper import Report
from goodspeed.app.fleet.keeping.plan import Plan
from goodspeed.app.fleet.others import to_json, to_text
from goodspeed.app.fleet.up import wait_until_ready
from goodspeed.command.reporter import QUIET
from goodspeed.errors import ProcessError
from goodspeed.fleet.replicas import Load

Run = Callable[..., tuple[int, str, str]]
PLAN = Plan(name="default", model="tiny-target", replicas=2, max_replicas=2)
READY = Report("replica-1", "tcp://127.0.0.1:1", "ready", load=Load(1.0, num_pages=9, free_pages=4, round_s=0.0123))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command in this process: exit status, standard output, standard error. No fleet is up before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["goodspeed-fleet", *words])
        try:
            status = cli.main()
        except SystemExit as end:  # argparse
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def gone(run: Run) -> Record:
    """A fleet whose Ray is gone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        record = Record(PLAN, f"127.0.0.1:{probe.getsockname()[1]}")
    folder = Folder("default")
    folder.make()
    folder.keep(record)
    return record


UP = ("up", "--model", "tiny-target")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("status",), "no fleet 'default' is up; start one with `goodspeed-fleet up`"),
        (("down", "--name", "x"), "no fleet 'x' is up"),
        (("status", "--name", "../x"), "--name: '../x' is no name of a fleet"),
        ((*UP, "--name", "../x"), "--name '../x' is unknown; it must be the fleet's name: up to 32 letters"),
        ((*UP, "--host", "0.0.0.0"), "listening at tcp://0.0.0.0:5555 needs keys"),
        ((*UP, "--key", "x"), "--key FILE and --enrolled FOLDER belong together"),
        ((*UP, "--key", "none.key", "--enrolled", "x"), "--key none.key: cannot read it"),
        ((*UP, "--max-replicas", "1"), "--max-replicas not below --replicas"),
        ((*UP, "--full-round-ms", "90"), "give --max-replicas N, too"),
        ((*UP, "--", "--buget", "3"), "unknown option --buget; did you mean --budget?"),
        ((*UP, "--", "--budget", "many"), "options of goodspeed-verify: "),
        (("up", "--model", "nowhere", "--port", "0"), "model 'nowhere' was not found"),
    ],
)
def test_what_is_wrong_is_one_line_with_what_to_do(run: Run, words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    status, out, err = run(*words)
    assert (status in (1, 2), out) == (True, "")
    assert line in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_port_in_use_is_told_before_anything_starts(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, _, err = run(*UP, "--replicas", "2", "--port", str(port - 1))
    assert f"cannot bind tcp://127.0.0.1:{port}" in err
    assert "another program listens there" in err


def test_an_address_without_a_ray_is_told_at_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"--address {address}: nobody listens there. Is Ray running?" in run(*UP, "--address", address)[2]
        other.listen()
        monkeypatch.setattr(checks, "CLUSTER_S", 0.1)
        assert f"--address {address}: what listens there does not answer as a Ray" in run(*UP, "--address", address)[2]
    assert not list(tmp_path.iterdir())


def test_without_ray_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    for words in (UP, ("status",)):
        assert "needs ray, which is not installed; in GoodSpeed's folder, try: pip install" in run(*words)[2]


def test_a_fleet_that_is_up_is_not_started_again(run: Run, gone: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "answers", lambda _: True)
    assert "the fleet default is up already; see `goodspeed-fleet status`" in run(*UP)[2]


def test_when_ray_is_gone_the_files_tell(run: Run, gone: Record) -> None:
    status, out, err = run("status", "--json")
    assert (status, json.loads(out)) == (0, {"fleet": "default", "ray": False, "replicas": []})
    assert "Ray is gone" in err
    for words in (("scale", "3"), ("drain", "replica-1")):
        assert f"is gone, at {gone.address}; its replicas go on" in run(*words)[2]
    assert "the fleet default is down" in run("down")[2]
    assert "no fleet 'default' is up" in run("down")[2]


def test_a_fleet_that_scales_itself_keeps_its_limits(run: Run, gone: Record) -> None:
    Folder("default").keep(Record(msgspec.structs.replace(PLAN, max_replicas=4), gone.address))
    assert "may have 2 to 4 replicas, not 5" in run("scale", "5")[2]
    assert "may have 2 to 4 replicas, not 1" in run("scale", "1")[2]


def test_others_that_are_up_are_named(run: Run, gone: Record) -> None:
    assert "no fleet 'x' is up; up are: default" in run("status", "--name", "x")[2]


def test_the_folder_is_its_owners_only(run: Run, gone: Record) -> None:
    assert Folder("default").path.stat().st_mode & 0o777 == 0o700


def test_a_replica_that_fails_at_its_start_ends_the_wait() -> None:
    failing = Report("replica-2", "tcp://127.0.0.1:2", "failing", why="no memory")
    with pytest.raises(ProcessError, match="replica-2 did not start: no memory"):
        wait_until_ready(lambda: ([READY, failing], ["replica-1", "replica-2"]), 2, QUIET)


def test_it_waits_until_as_many_are_ready() -> None:
    second = msgspec.structs.replace(READY, name="replica-2")
    looks = iter([([READY], ["replica-1"]), ([READY, second], ["replica-1", "replica-2"])])
    assert wait_until_ready(lambda: next(looks), 2, QUIET) == [READY, second]


def test_the_table_of_status() -> None:
    dead = Report("replica-2", "tcp://127.0.0.1:2", "starting", num_restarts=3, why="no memory")
    assert to_text([READY, dead]).splitlines() == [
        "name       endpoint           state     sessions  pages  round  restarts",
        "replica-1  tcp://127.0.0.1:1  ready     0/1       5/9    12 ms  0",
        "replica-2  tcp://127.0.0.1:2  starting  -         -      -      3",
        "replica-2 ended, and said last: no memory",
    ]
    assert to_json(READY)["pages"] == 5
    assert to_json(dead)["sessions"] is None
