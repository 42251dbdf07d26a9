"""A node finds itself in its fleet, hears of changes, and keeps what it knew of a damaged file."""

import logging
from pathlib import Path

import msgspec
import pytest

from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table
from tests.fleet.test_table import KEY, write
from verify_node.process.fleet_member import PeersFile, join

LOAD = Load(0.0)
A, B = Replica("a", "tcp://127.0.0.1:1001"), Replica("b", "tcp://127.0.0.1:1002", KEY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "peers.json"
    write(path, Table((A, B)))
    return path


def member(path: Path) -> PeersFile:
    joined = join(str(path), None, A.endpoint)
    assert joined is not None
    return joined


@pytest.mark.parametrize(
    ("key", "endpoint", "host", "found"),
    [
        (KEY, A.endpoint, "a", "b"), ("o" * 40, A.endpoint, "b", "a"),
        (None, B.endpoint, "a", "b"), (None, "tcp://0.0.0.0:5555", "b", "b"),
    ],
)  # fmt: skip
def test_a_node_finds_itself(path, key, endpoint, host, found, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert join(str(path), key, endpoint).name == found


def test_replicas_that_share_a_key_are_told_apart_by_their_endpoints_and_without_the_option_there_is_no_fleet(path):
    write(path, Table((msgspec.structs.replace(A, public_key=KEY), B)))
    assert join(str(path), KEY, A.endpoint).name == "a"
    assert join(None, None, A.endpoint) is None


def test_a_node_that_is_not_found_is_told_what_there_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "pod-7")
    with pytest.raises(ConfigError, match=r"is at tcp://x:1, or is called pod-7 .*correct the file, which has: a, b"):
        join(str(path), None, "tcp://x:1")


def test_a_change_is_heard_once(path: Path) -> None:
    joined = member(path)
    assert (joined.look(LOAD), joined.look(LOAD)) == ((A, B), None)
    write(path, Table((A, B)))
    assert joined.look(LOAD) is None  # the same again
    write(path, Table((A,)))
    assert joined.look(LOAD) == (A,)


def test_a_damaged_file_changes_nothing_and_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    joined = member(path)
    joined.look(LOAD)
    path.write_text("{")
    assert joined.look(LOAD) is None
    assert joined.look(LOAD) is None
    write(path, Table((B,)))
    assert joined.look(LOAD) is None  # it is not in it
    path.unlink()
    assert joined.look(LOAD) is None
    told = [vars(record)["why"].args[0] for record in caplog.records if record.levelno == logging.WARNING]
    assert ["it is not JSON" in told[0], "not among" in told[1], "cannot read" in told[2]] == [True] * 3
    assert len(told) == 3
    write(path, Table((A, B, Replica("c", "tcp://h:1"))))
    assert [replica.name for replica in joined.look(LOAD)] == ["a", "b", "c"]
