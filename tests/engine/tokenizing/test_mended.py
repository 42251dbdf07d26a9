"""Corrected copies of checkpoints: one of each folder in a process, and none of a process that was killed."""

import codecs
import fcntl
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from goodspeed.engine.tokenizing.mended import PREFIX, mended


@pytest.fixture(name="temporary")
def temporary_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def save(folder: Path, text: bytes = b"{}") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocabulary.json").write_bytes(codecs.BOM_UTF8 + text)
    (folder / "weights").write_text("many")
    return folder


def test_a_folder_is_copied_once_until_its_files_change(tmp_path: Path, temporary: Path) -> None:
    folder = save(tmp_path / "model")
    copy = mended(folder)
    assert mended(folder) == copy
    assert len(list(temporary.iterdir())) == 1
    assert mended(save(tmp_path / "another")) != copy
    changed = mended(save(folder, b"[]"))
    assert (changed / "vocabulary.json").read_bytes() == b"[]"
    assert (copy / "vocabulary.json").read_bytes() == b"{}", "whoever has the earlier copy keeps it"
    assert (changed / "weights").read_text() == "many"


def test_copies_of_killed_processes_are_removed_and_no_others(tmp_path: Path, temporary: Path) -> None:
    abandoned, used, new = (temporary / f"{PREFIX}{name}" for name in ("abandoned", "used", "new"))
    for place in (abandoned, used):
        save(place)
    new.mkdir()  # another process is about to lock it
    leads_out = temporary / f"{PREFIX}link"
    leads_out.symlink_to(save(tmp_path / "elsewhere"))
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    own = mended(save(tmp_path / "first"))
    mended(save(tmp_path / "second"))
    assert not abandoned.exists()
    assert (used / "weights").exists()
    assert new.exists()
    assert (leads_out / "weights").exists()
    assert (own / "weights").exists(), "a process's own copies are in use, too"
    os.close(descriptor)
    mended(save(tmp_path / "third"))
    assert not used.exists()


def test_a_copy_that_failed_is_made_again(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "model")
    with monkeypatch.context() as patched:
        patched.setattr(TemporaryDirectory, "__init__", _refuse)
        with pytest.raises(OSError, match="full"):
            mended(folder)
    assert (mended(folder) / "weights").exists()


def _refuse(*_args: object, **_kwargs: object) -> None:
    raise OSError("full")
