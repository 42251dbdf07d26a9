"""A lock is one process's, and leaves nothing behind."""

import os
from pathlib import Path

import pytest

from goodspeed.files import Lock


def test_one_at_a_time_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = Lock(path)
    with pytest.raises(BlockingIOError):
        Lock(path)
    assert path.exists()
    first.release()
    first.release()
    assert not path.exists()
    Lock(path)  # nothing refers to it
    assert not path.exists()


def test_a_lock_whose_file_was_just_removed_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "lock", os.open
    last = [Lock(path)]

    def open_late(path: Path, flags: int, mode: int) -> int:
        descriptor = opened(path, flags, mode)
        if last:
            last.pop().release()  # between the opening and the locking
        return descriptor

    monkeypatch.setattr("os.open", open_late)
    lock = Lock(path)
    with pytest.raises(BlockingIOError):
        Lock(path)
    lock.release()


def test_what_is_in_a_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("somebody's")
    Lock(path).release()
    assert path.read_text() == "somebody's"


def test_the_file_of_another_holder_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = Lock(path)
    path.unlink()  # by whoever clears the folder
    second = Lock(path)
    first.release()
    with pytest.raises(BlockingIOError):
        Lock(path)
    second.release()
    assert not path.exists()
