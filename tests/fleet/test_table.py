"""The peers file: what may stand in it, and what its reader is told where it is wrong."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from goodspeed import files
from goodspeed.errors import ConfigError
from goodspeed.fleet import table
from goodspeed.fleet.replicas import MAX_REPLICAS, Load, Replica
from goodspeed.fleet.table import Table

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


def entry(number: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"r{number}", "endpoint": f"tcp://10.0.0.{number}:5555"} | fields


def written(folder: Path, value: object) -> Path:
    path = folder / "peers.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def write(path: Path, whole: Table) -> None:
    files.write_whole(path, msgspec.json.encode(whole))


def test_what_a_person_writes_is_read_and_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, {"replicas": [entry(1), entry(2, public_key=KEY)]})
    first, second = table.read(path).replicas
    assert first == Replica("r1", "tcp://10.0.0.1:5555")
    assert (second.public_key, second.load) == (KEY, None)
    load = Load(told_at=1e9, boot_id="ab", num_sessions=3, max_sessions=8, round_s=0.02)
    whole = Table((Replica("a", "tcp://h:1", KEY, load), Replica("b", "tcp://h:2", KEY)))
    write(path, whole)
    assert table.read(path) == whole
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["peers.json"]
    assert whole.find("b") == whole.replicas[1]
    assert whole.find("c") is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no json", "it is not JSON"),
        ("[" * 100_000, "it is not JSON|Expected `object`"),
        ({}, "missing required field `replicas`"),
        ({"replicas": []}, "length >= 1"),
        ({"replicas": [entry(n) for n in range(MAX_REPLICAS + 1)]}, f"length <= {MAX_REPLICAS}"),
        ({"replicas": [entry(1), entry(1, endpoint="tcp://h:2")]}, "two replicas have the name r1"),
        ({"replicas": [entry(1), entry(2, endpoint="tcp://10.0.0.1:5555")]}, "the endpoint tcp://10.0.0.1:5555"),
        ({"replicas": [entry(1, endpoint="ipc://x/yz")]}, "matching regex"),
        ({"replicas": [entry(1, endpoint="tcp://nowhere")]}, r"matching regex .*replicas\[0\].endpoint"),
        ({"replicas": [entry(1, endpoint="tcp://h:*")]}, "matching regex"),
        ({"replicas": [entry(1, name="a b")]}, "matching regex"),
        ({"replicas": [entry(1, public_key="short")]}, "a public_key must be that of the replica's verify.pub"),
        ({"replicas": [entry(1, colour="red")]}, "unknown field `colour`"),
        ({"replicas": [entry(1, load={"told_at": 1, "num_sessions": -1})]}, ">= 0"),
    ],
)
def test_a_wrong_file_is_named_with_what_to_do(tmp_path: Path, value: object, why: str) -> None:
    path = written(tmp_path, value)
    with pytest.raises(ConfigError, match=f"--peers .*peers.json: .*({why})(?s:.*); it looks like ") as error:
        table.read(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read it \(No such file or directory\)"):
        table.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot read it"):
        table.read(tmp_path)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(table.MAX_BYTES + 1)
    with pytest.raises(ConfigError, match=f"more than {table.MAX_BYTES} bytes"):
        table.read(large)


def test_a_reader_finds_the_old_table_or_the_new_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    small = Table((Replica("a", "tcp://h:1"),))
    large = Table(tuple(Replica(f"r{n}", f"tcp://h:{n + 1}") for n in range(MAX_REPLICAS)))
    write(path, small)
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            write(path, large)
            write(path, small)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        assert all(table.read(path) in (small, large) for _ in range(300))
    finally:
        stop.set()
        writer.join()


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "peers.json"
    write(path, Table((Replica("a", "tcp://h:1"),)))

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, Table((Replica("b", "tcp://h:1"),)))
    assert [replica.name for replica in table.read(path).replicas] == ["a"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["peers.json"]
