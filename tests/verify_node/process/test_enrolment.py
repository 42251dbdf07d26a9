"""The enrolment folder: read again when it changed, and what is wrong in it costs nobody else anything."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from goodspeed.errors import ConfigError
from goodspeed.untrusted import file_state
from goodspeed.wire import keys
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.zmq.authentication import new_pair
from verify_node.process import enrolment
from verify_node.process.enrolment import Enrolment


def enrol(folder: Path, name: str, *, file: str | None = None, key: str | None = None, **limits: float) -> Enrolled:
    record = Enrolled(name, key or new_pair(name).public_key, **limits)  # type: ignore[arg-type]
    path = folder / f"{file or name}.pub"
    path.unlink(missing_ok=True)
    keys.write_enrolled(path, record)
    return record


class Watched(Enrolment):
    """Notes who is enrolled after each change that is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.told: list[set[str]] = []
        self.on_change = lambda: self.told.append(self.names)

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.enrolled.values()}

    def look_again(self) -> dict[str, Enrolled]:
        """Looks, and returns who is enrolled by now, by key."""
        self.look()
        return self.enrolled


def test_files_come_change_and_go_and_that_is_told_by_name(tmp_path: Path) -> None:
    a, b = enrol(tmp_path, "a"), enrol(tmp_path, "b")
    found, said = Watched(tmp_path), list[str]()
    assert found.enrolled == {a.public_key: a, b.public_key: b}
    found.say = lambda sentences: said.extend(sentence.text % sentence.values for sentence in sentences)
    heavy = enrol(tmp_path, "a", key=a.public_key, weight=3.0, max_sessions=2)
    assert found.look_again()[a.public_key] == heavy
    assert said.pop() == "draft node a is enrolled anew"
    enrol(tmp_path, "b")
    enrol(tmp_path, "c")
    (tmp_path / "a.pub").unlink()
    for _ in range(2):
        found.look()
    assert said == ["draft node a is revoked", "draft node b is enrolled anew", "draft node c is enrolled"]
    assert b.public_key not in found.enrolled
    assert found.told == [{"a", "b"}, {"b", "c"}]


def test_a_tier_that_the_node_does_not_have_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    enrol(tmp_path, "a", tiers=("fast", "fsat"))  # type: ignore[arg-type]
    enrol(tmp_path, "b")
    found = Enrolment(str(tmp_path), {"fast"})
    assert [(record.__dict__["file"], record.__dict__["tiers"]) for record in caplog.records] == [("a.pub", "fsat")]
    assert len(found.enrolled) == 2


def test_nothing_is_read_while_nothing_changes_nor_does_a_file_written_as_it_was_change_any(tmp_path, monkeypatch):
    a = enrol(tmp_path, "a")
    found, read = Watched(tmp_path), Mock(wraps=keys.read_enrolled)
    monkeypatch.setattr(enrolment, "read_enrolled", read)
    found.look()
    read.assert_not_called()
    enrol(tmp_path, "a", key=a.public_key)
    os.utime(tmp_path / "a.pub", (1, 1))
    found.look()
    assert not found.told
    read.reset_mock()
    enrol(tmp_path, "a", key=a.public_key, weight=3.0)
    found.look()
    read.assert_called_once_with(tmp_path / "a.pub")


@pytest.mark.parametrize("content", [b"", b"\xff", b'name = "c"', b"weight = 1"])
def test_a_broken_file_is_named_and_leaves_the_others(content: bytes, tmp_path: Path, caplog: Any) -> None:
    a, b = enrol(tmp_path, "a"), enrol(tmp_path, "b")
    found = Watched(tmp_path)
    (tmp_path / "b.pub").write_bytes(content)
    (tmp_path / "notes.txt").write_text("who is who")
    (tmp_path / "loop.pub").symlink_to("loop.pub")
    assert found.look_again() == {a.public_key: a}, "a file that is broken enrols nobody"
    assert {vars(one)["file"] for one in caplog.records if vars(one).get("why")} == {"b.pub", "loop.pub", "notes.txt"}
    enrol(tmp_path, "b", key=b.public_key)
    assert set(found.look_again()) == {a.public_key, b.public_key}


def test_two_files_of_one_key_or_name_are_an_error_at_the_start(tmp_path: Path) -> None:
    a = enrol(tmp_path, "a")
    enrol(tmp_path, "other", key=a.public_key)
    with pytest.raises(ConfigError, match=r"other\.pub has the same key as a\.pub"):
        Enrolment(str(tmp_path))
    (tmp_path / "other.pub").unlink()
    enrol(tmp_path, "a", file="again")
    with pytest.raises(ConfigError, match=r"again\.pub has the same name 'a' as a\.pub|a\.pub.*again\.pub"):
        Enrolment(str(tmp_path))


def test_a_newcomer_that_clashes_takes_nothing_from_who_is_there(tmp_path: Path, caplog: Any) -> None:
    """Nor does a copy that comes and goes."""
    b = enrol(tmp_path, "b")
    found = Watched(tmp_path)
    (tmp_path / "a-copy.pub").write_bytes((tmp_path / "b.pub").read_bytes())
    found.look()
    (tmp_path / "a-copy.pub").unlink()
    enrol(tmp_path, "b", file="a-comes-first")
    enrol(tmp_path, "c", key=b.public_key)
    assert found.look_again() == {b.public_key: b}
    assert not found.told
    why = [str(vars(record).get("why")) for record in caplog.records]
    assert "a-comes-first.pub has the same name 'b' as b.pub" in why
    assert "c.pub has the same key as b.pub" in why


def test_a_refused_file_stays_refused_when_the_whole_folder_was_away(tmp_path: Path) -> None:
    folder = tmp_path / "enrolled"
    folder.mkdir()
    b = enrol(folder, "b")
    found = Watched(folder)
    enrol(folder, "b", file="a-comes-first")
    found.look()
    folder.rename(tmp_path / "elsewhere")
    found.look()
    (tmp_path / "elsewhere").rename(folder)
    assert found.look_again() == {b.public_key: b}


def test_a_refused_file_stays_refused_when_the_owner_is_revoked_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    b = enrol(tmp_path, "b")
    found = Watched(tmp_path)
    rival = enrol(tmp_path, "b", file="rival")
    enrol(tmp_path, "c", key=b.public_key)
    found.look()
    (tmp_path / "b.pub").rename(tmp_path / ".b.pub")
    assert found.look_again() == {}, "revoking a key must not enrol another by its name"
    (tmp_path / ".b.pub").rename(tmp_path / "b.pub")
    assert found.look_again() == {b.public_key: b}, "the owner comes back"
    (tmp_path / "b.pub").unlink()
    (tmp_path / "c.pub").unlink()
    found.look()
    enrol(tmp_path, "b", file="rival", key=rival.public_key)
    caplog.clear()
    assert found.look_again() == {}, "it says what it said when it was refused"
    assert [vars(record)["file"] for record in caplog.records] == ["rival.pub"], "which its log says"
    caplog.clear()
    enrol(tmp_path, "d", file="rival", key=rival.public_key)
    assert [one.name for one in found.look_again().values()] == ["d"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "it was mended"
    enrol(tmp_path, "b", file="rival", key=rival.public_key)
    found.look()
    (tmp_path / "rival.pub").unlink()
    found.look()
    enrol(tmp_path, "b", file="rival", key=rival.public_key)
    assert found.look_again() == {rival.public_key: rival}, "a file that comes anew is a file like any other"


def test_a_folder_that_is_gone_enrols_nobody_and_is_reported_once(tmp_path: Path, caplog: Any) -> None:
    folder = tmp_path / "enrolled"
    with pytest.raises(ConfigError, match=r"cannot read the folder.*make it"):
        Enrolment(str(folder))
    folder.mkdir()
    enrol(folder, "a")
    found = Watched(folder)
    for _ in range(2):
        folder.rename(tmp_path / "elsewhere")
        for _ in range(3):
            found.look()
        (tmp_path / "elsewhere").rename(folder)
        found.look()
    assert found.told == [set(), {"a"}] * 2
    assert [line.getMessage() for line in caplog.records] == ["the folder is gone: nobody is enrolled"] * 2
    assert {vars(line)["what_to_do"] for line in caplog.records} == {"make the folder again, or mount it"}


def test_a_file_that_is_removed_while_the_folder_is_listed_is_left_out(tmp_path, monkeypatch, caplog):
    found = Watched(tmp_path)
    enrol(tmp_path, "a")

    def removed(path: Path) -> object:
        path.unlink()
        return file_state(path)

    monkeypatch.setattr(enrolment, "file_state", removed)
    assert (found.look_again(), caplog.records) == ({}, [])


def test_an_unknown_key_makes_it_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("verify_node.process.enrolment.time.monotonic", lambda: now)
    found = Watched(tmp_path)
    refused: list[str] = []
    found.on_refused = refused.append
    a = enrol(tmp_path, "a")
    assert not found.admits(a.public_key), "it looked just before"
    now += enrolment.LOOK_S
    assert found.admits(a.public_key)
    assert (len(refused), found.told) == (1, [{"a"}])


def test_hidden_files_and_links_as_mounts_of_secrets_make_them(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    a = enrol(tmp_path / "..data", "a")
    (tmp_path / "a.pub").symlink_to("..data/a.pub")
    (tmp_path / ".a.pub.swp").write_text("x")
    assert Enrolment(str(tmp_path)).enrolled == {a.public_key: a}
