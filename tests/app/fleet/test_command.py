"""The errors of `goodspeed-fleet`; nothing is started here."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import ray

from goodspeed.app.fleet import actors, cli, head
from goodspeed.app.fleet.head import Record
from goodspeed.app.fleet.options import UpConfig
from goodspeed.errors import ProcessError
from goodspeed.fleet.keeping import Report, Reports
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.serving.events import QUIET

Run = Callable[..., tuple[int, str, str]]
CONFIG = UpConfig(model="tiny-target")


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
def gone(run: Run, tmp_path: Path) -> Record:
    """A fleet whose own Ray is gone."""
    with subprocess.Popen(["true"]) as ended:
        pass
    return Record(CONFIG, address="127.0.0.1:1", pid=ended.pid, temp=str(tmp_path / "goodspeed-ray-x")).keep()


@pytest.fixture
def users(run: Run) -> Record:
    """A fleet on a Ray of the user's that does not answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Record(CONFIG, address=f"127.0.0.1:{probe.getsockname()[1]}").keep()


UP = ("up", "--model", "tiny-target")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("status",), "no fleet 'default' is up; start one with `goodspeed-fleet up`"),
        (("down", "--name", "x"), "no fleet 'x' is up"),
        (("status", "--name", "../x"), "no fleet '../x' is up"),
        ((*UP, "--name", "../x"), "--name '../x' is unknown; it must be the fleet's name: up to 32 letters"),
        ((*UP, "--host", "10.0.0.5"), "listening at tcp://10.0.0.5:5555 needs keys"),
        (
            (*UP, "--host", "0.0.0.0", "--trusted-network"),
            "--host 0.0.0.0: draft nodes learn this address of",
        ),
        ((*UP, "--key", "x"), "--key FILE needs --enrolled FOLDER, and vice versa"),
        ((*UP, "--key", "none.key", "--enrolled", "x"), "--key none.key: cannot read it"),
        ((*UP, "--http", "9000"), "--http '9000'"),
        ((*UP, "--port", "0", "--http", "127.0.0.1:65535"), "give a port up to 65"),
        ((*UP, "--http", "127.0.0.1:5556"), "--port 5555 and --http 127.0.0.1:5556 overlap"),
        ((*UP, "--host", "*", "--trusted-network", "--http", "127.0.0.1:5556"), "5555 and --http 127.0.0.1:5556"),
        ((*UP, "--port", "0", "--http", "0.0.0.0:9000"), "--http 0.0.0.0:9000 reaches beyond this machine"),
        ((*UP, "--", "--http", "127.0.0.1:9"), "--http 127.0.0.1:9 after `--` is one port for all replicas; give"),
        ((*UP, "--", "--buget", "3"), "unknown option --buget; did you mean --budget?"),
        ((*UP, "--", "--budget", "many"), "goodspeed-verify: --budget"),
        (("up", "--model", "nowhere", "--port", "0"), "model 'nowhere' was not found"),
    ],
)
def test_what_is_wrong_is_one_line_with_what_to_do(run: Run, words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    status, out, err = run(*words)
    assert (status in (1, 2), out) == (True, "")
    assert line in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_of_two_that_start_one_fleet_one_is_refused(run: Run, tmp_path: Path) -> None:
    with cli._only_one("default"):
        assert "another `goodspeed-fleet up` is starting the fleet default; wait" in run(*UP, "--port", "0")[2]
    assert head.find("default") is None
    assert [one.name for one in tmp_path.rglob("*") if one.is_file()] == [".default.lock"]
    with cli._only_one("default"):
        pass


@pytest.mark.parametrize("damaged", [b'{"config":{"model":"\xff"}}', b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}"])
def test_a_damaged_record_is_told(run: Run, gone: Record, damaged: bytes) -> None:
    (gone.path / "fleet.json").write_bytes(damaged)
    assert "fleet.json is not a valid fleet record (" in run("status")[2]


def test_a_port_in_use_is_told_before_anything_starts(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, _, err = run(*UP, "--replicas", "2", "--port", str(port - 1))
    assert f"cannot bind tcp://127.0.0.1:{port}" in err
    assert "another program listens there" in err


def test_an_address_without_a_ray_is_told_at_once(run: Run, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"--address {address}: nobody listens there; `ray start --head`" in run(*UP, "--address", address)[2]
    assert not list(tmp_path.iterdir())


def test_without_ray_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodspeed.errors.find_spec", lambda _: None)
    for words in (UP, ("status",)):
        assert "needs ray, which is not installed; in GoodSpeed's folder, try: pip install" in run(*words)[2]


def test_gpus_that_no_replica_would_use_are_not_waited_for(run: Run) -> None:
    for words, number in ((("--tp", "2"), 2), (("--gpus", "1"), 1)):
        what = f"Ray would reserve {number} GPUs for each replica, which would compute on the CPU; add `-- --device"
        assert what in run(*UP, "--port", "0", *words)[2]


@pytest.mark.parametrize("words", [("status",), ("scale", "3")])
def test_a_fleet_whose_ray_starts_is_waited_for(run: Run, gone: Record, words: tuple[str, ...]) -> None:
    Record(gone.config, temp=gone.temp).keep()
    assert "the fleet default is starting; wait for `goodspeed-fleet up`" in run(*words)[2]


def test_a_fleet_that_is_up_is_not_started_again(run: Run, gone: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "is_there", True)
    assert "the fleet default is already running; end it with `goodspeed-fleet down`" in run(*UP)[2]


def test_when_ray_is_gone_the_fleet_can_be_started_again_or_forgotten(run: Run, gone: Record) -> None:
    status, out, err = run("status", "--json")
    assert (status, json.loads(out)) == (0, {"fleet": "default", "ray": False, "replicas": []})
    assert "Ray is gone, and its replicas with it" in err
    for words in (("scale", "3"), ("drain", "replica-1")):
        assert "the Ray of the fleet default is gone; start it again with `goodspeed-fleet up`" in run(*words)[2]
    assert "the fleet default is down" in run("down")[2]
    assert "no fleet 'default' is up" in run("down")[2]


def test_a_fleet_on_a_ray_that_does_not_answer_is_not_forgotten(run, users, monkeypatch) -> None:
    for why in ("is gone", "does not answer"):
        status, out, err = run("down", "--timeout-s", "0")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert why in err
        assert f"; if its replicas have ended, remove {users.path}\n" in err
        assert head.find("default") == users
        monkeypatch.setattr(Record, "is_there", True)
        monkeypatch.setattr("ray.init", Mock(side_effect=ConnectionError("no")))


class Keeper:
    """Stands for the handle of a fleet's `Fleet` actor, and for Ray's `get` of its answers."""

    def __init__(self, record: Record) -> None:
        self.record_, self.asked = record, list[str]()

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *words: method)

    def get(self, method: str, timeout: float) -> bytes | None:
        self.asked.append(method)
        if method == "end":
            raise ray.exceptions.ActorDiedError
        return msgspec.json.encode({"record": self.record_, "status": reports("ready")}.get(method))


@pytest.fixture
def keeper(run: Run, users: Record, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """A Ray that answers, with the fleet of `users`."""
    keeper = Keeper(users)
    monkeypatch.setattr(Record, "is_there", True)
    monkeypatch.setattr("ray.init", Mock())
    monkeypatch.setattr("ray.get", keeper.get)
    monkeypatch.setattr(actors, "begin", lambda *words, **options: keeper)
    return keeper


def test_another_s_fleet_of_that_name_is_not_served_and_not_ended(run: Run, users: Record, keeper: Keeper) -> None:
    (users.path / "fleet.json").unlink()
    up = (*UP, "--replicas", "1", "--address", users.address)
    status, out, err = run(*up, "--", "--budget", "9")
    assert (status, out) == (2, "")
    assert f"the Ray at {users.address} has another fleet default, with other options" in err
    assert set(keeper.asked) == {"record"}
    assert head.find("default") is None
    config = UpConfig(model="tiny-target", replicas=1, address=users.address)
    keeper.record_ = Record(config, folder=str(Path.cwd()), address=users.address)
    assert run(*up)[:2] == (0, "e1\n")
    assert run("down", "--timeout-s", "0")[0] == 0
    assert keeper.asked[-1] == "end"
    assert head.find("default") is None


def test_a_fleet_keeps_its_limits(run: Run, gone: Record) -> None:
    Record(UpConfig(model="tiny-target", http="127.0.0.1:5557"), address=gone.address).keep()
    assert "put them 3 ports apart or more" in run("scale", "3")[2]
    for number in ("0", "65"):
        assert f"may have 1 to 64 replicas, not {number}" in run("scale", number)[2]


def test_the_folder_is_its_owners_only(run: Run, gone: Record) -> None:
    assert gone.path.stat().st_mode & 0o777 == 0o700
    assert (gone.path / "fleet.json").stat().st_mode & 0o777 == 0o600


def test_a_ray_of_ours_is_known_by_its_command_line() -> None:
    words = [sys.executable, "-c", "print(flush=True); input()", "--temp-dir=/x/goodspeed-ray-x"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ours:
        ours.stdout.readline()
        record = Record(CONFIG, pid=ours.pid, temp="/x/goodspeed-ray-x")
        assert record.is_there
        assert not msgspec.structs.replace(record, temp="/x/goodspeed-ray-y").is_there
        ours.communicate(b"\n")
    assert not record.is_there


def test_another_process_with_the_id_of_ray_is_left_alone(run: Run, tmp_path: Path) -> None:
    (temp := tmp_path / "goodspeed-ray-x").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other:
        record = Record(CONFIG, address="127.0.0.1:1", pid=other.pid, temp=str(temp))
        assert not record.is_there
        head.end(record)
        assert not temp.exists()
        other.communicate(b"\n")
    assert other.returncode == 0


def test_words_for_a_replica_name_keys_by_their_files() -> None:
    config = UpConfig(model="m", host="0.0.0.0", key="v.key", enrolled="e", tp=2)
    assert Record(config, ("--budget=8",)).words(5556, 2) == [
        *("--model=m", "--bind=tcp://0.0.0.0:5556", "--tp=2", "--key=v.key", "--enrolled=e", "--budget=8")
    ]
    assert config.num_gpus == 2
    assert UpConfig(model="m", tp=2, gpus=0).num_gpus == UpConfig(model="m").num_gpus == 0


def test_each_replica_has_a_page_of_its_own() -> None:
    record = Record(UpConfig(model="m", http="[::1]:9000"))
    assert [record.words(5555, number)[-1] for number in (1, 3)] == ["--http=[::1]:9000", "--http=[::1]:9002"]
    assert Record(UpConfig(model="m", http="h:0")).words(5555, 2)[-1] == "--http=h:0"


def reports(*states: str) -> list[dict[str, object]]:
    numbered = enumerate(states, 1)
    return [{"name": f"replica-{n}", "endpoint": f"e{n}", "state": state, "why": "?"} for n, state in numbered]


def test_a_replica_that_fails_at_its_start_ends_the_wait() -> None:
    with pytest.raises(ProcessError, match=r"replica-2 did not start: \?"):
        cli._scale(lambda method, *words: reports("ready", "failing"), 2, QUIET)


@pytest.mark.parametrize(
    ("looks", "ready"),
    [
        ([("ready",), ("ready", "starting"), ("ready", "ready")], {"replica-1": "e1", "replica-2": "e2"}),
        ([("ready", "draining"), ("ready",)], {"replica-1": "e1"}),
        ([("ready", "failing"), ("ready",)], {"replica-1": "e1"}),
    ],
    ids=["come", "drain", "leave while they fail"],
)
def test_it_waits_until_as_many_are_ready(looks, ready, monkeypatch) -> None:
    monkeypatch.setattr(cli, "POLL_S", 0.0)
    told = iter([None, *(reports(*states) for states in looks)])
    assert cli._scale(lambda method, *words: next(told), len(ready), QUIET) == ready


@pytest.mark.parametrize(
    ("states", "name", "leaves"),
    [
        (("ready", "failing"), "replica-1", False),
        (("ready", "failing"), "replica-2", True),
        (("ready", "draining"), "replica-1", False),
        (("starting", "draining"), "replica-1", False),
        (("ready", "ready"), "replica-1", True),
    ],
)
def test_the_last_replica_that_serves_is_not_drained(run, gone, states, name, leaves, monkeypatch) -> None:
    here = reports(*states)

    def ask(method: str, *words: object) -> object:
        if method == "drain":
            here[:] = [one for one in here if one["name"] != words[0]]
        return here

    monkeypatch.setattr(cli, "_asking", lambda record: nullcontext(ask))
    status, _, err = run("drain", name)
    assert (status == 0, len(here)) == (leaves, len(states) - leaves)
    assert ("is the last one that serves" in err) != leaves


def test_a_replica_that_still_drains_keeps_its_ports(run: Run, gone: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """replica-4 would have the port of replica-1's page."""
    Record(UpConfig(model="tiny-target", http="127.0.0.1:5558"), address=gone.address).keep()
    here, asked = reports("ready", "ready", "draining"), list[str]()

    def ask(method: str, *words: object) -> object:
        asked.append(method)
        if method == "scale":
            here[2]["state"] = "ready"
        return here

    monkeypatch.setattr(cli, "_asking", lambda record: nullcontext(ask))
    assert "--port 5555 and --http 127.0.0.1:5558 overlap, since each of 4 replicas" in run("scale", "3")[2]
    assert asked == ["status"]
    here[2]["state"] = "ready"
    assert run("scale", "3")[0] == 0


@pytest.mark.parametrize("leaving", [{}, {"replica-1": actors.Leaving(5.0, 60.0)}])
def test_a_replica_that_died_while_it_drained_does_not_come_back(leaving, monkeypatch) -> None:
    ended = Mock()
    monkeypatch.setattr(ray, "get_actor", lambda name: name)
    monkeypatch.setattr(ray, "kill", ended)
    fleet = object.__new__(actors.Fleet)  # without its thread
    fleet._reports, fleet._leaving = Reports(), leaving
    for pid in (7, 7, 8):
        fleet.report(msgspec.json.encode(Report(Replica("replica-1", "tcp://127.0.0.1:1"), "starting", pid)))
        assert ended.called == (pid == 8 and bool(leaving))


def test_a_replica_that_does_not_drain_in_time_or_has_no_process_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray queues what is asked of a replica for which it has no room."""
    killed, names = Mock(), ["replica-1", "replica-2", "replica-3"]
    monkeypatch.setattr(ray, "get_actor", Mock())
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: killed(no_restart))
    monkeypatch.setattr(actors, "names", lambda: names)
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    fleet = object.__new__(actors.Fleet)  # without its thread
    fleet._reports, fleet._leaving = Reports(), {}
    fleet._reports.hear(Report(Replica("replica-2", "tcp://127.0.0.1:2"), "ready", 1), clock.now, 0.0)
    fleet.drain("replica-2", 60.0)
    fleet.look_after()
    assert not killed.called
    for name in ("replica-1", "replica-3"):
        fleet.drain(name, 60.0)
    clock.now = 104.0
    fleet._reports.hear(Report(Replica("replica-1", "tcp://127.0.0.1:1"), "ready", 1), clock.now, 0.0)
    fleet.look_after()
    assert not killed.called
    clock.now = 106.0
    fleet.look_after()
    killed.assert_called_once_with(True)
    assert set(fleet._leaving) == set(names), "it is asked for until it is gone"
    names.remove("replica-3")
    clock.now = 166.0
    fleet.look_after()
    assert (killed.call_count, set(fleet._leaving)) == (3, {"replica-1", "replica-2"})


def test_who_leaves_drains_before_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "names", lambda: ["replica-1", "replica-2"])
    fleet = object.__new__(actors.Fleet)  # without its thread
    fleet._reports, fleet._leaving = Reports(), {"replica-2": actors.Leaving(5.0, 60.0)}
    for name in actors.names():
        fleet._reports.hear(Report(Replica(name, f"tcp://127.0.0.1:{name[-1]}"), "ready", 1), 0.0, 0.0)
    assert [one["state"] for one in msgspec.json.decode(fleet.status())] == ["ready", "draining"]


@pytest.mark.parametrize("folder", [".", "/no/such/folder"])
def test_a_replica_that_does_not_find_its_files_reports_it(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of its constructor would end the actor for good, and `up` would wait for ever."""
    told = list[Report]()
    report = SimpleNamespace(remote=lambda data: told.append(msgspec.json.decode(data, type=Report)))
    monkeypatch.setattr(actors, "AGAIN_S", 0.0)
    monkeypatch.setattr("os._exit", Mock(side_effect=InterruptedError))
    record = Record(UpConfig(model="tiny-target", key="none.key", enrolled="x"), folder=folder)
    with pytest.raises(InterruptedError):
        actors.Node(SimpleNamespace(report=report), msgspec.json.encode(record), "replica-1", 5555)
    assert [one.state for one in told] == ["starting", "failing"]
    assert ("none.key: cannot read it" if folder == "." else "No such file or directory: '/no/such") in told[1].why


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--bind tcp://127.0.0.1:9", "--bind cannot be given after `--`; give --host and --port before it"),
        ("--model tiny-draft-s", "--model cannot be given after `--`; give --model before it"),
        ("--tp 2", "--tp cannot"),
        ("--key a --enrolled b", "--key cannot"),
        ("--peers a", "--peers cannot be given after `--`; the fleet keeps the table of its replicas"),
        ("--http 127.0.0.1:9001", "--http cannot be given after `--`; give --http before it"),
    ],
)
def test_what_the_fleet_decides_is_not_given_to_its_replicas(run: Run, words: str, line: str) -> None:
    status, out, err = run(*UP, "--port", "0", "--http", "127.0.0.1:0", "--", *words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert line in err


def test_what_status_tells() -> None:
    load = Load(1.0, num_pages=9, free_pages=4, round_s=0.0123)
    told = Report(Replica("replica-1", "tcp://127.0.0.1:1"), "ready", 7).with_load(load).told()
    own = {"name": "replica-1", "endpoint": "tcp://127.0.0.1:1", "state": "ready", "pid": 7, "restarts": 0, "why": ""}
    assert told == own | {"sessions": 0, "max_sessions": 1, "pages": 5, "num_pages": 9, "round_s": 0.0123}
    assert Report(Replica("replica-2", "")).told()["sessions"] is None
