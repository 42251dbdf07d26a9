"""Replaces private files atomically, so that readers find either the old contents or the new ones, whole."""

import fcntl
import os
import re
from pathlib import Path


def write_whole(path: str | Path, data: bytes, *, durable: bool = False) -> None:
    """Writes a file of mode 0600 under a temporary name beside `path`, then renames it; OSError if that fails.

    durable: waits for the disk, so that the new contents survive a power failure.
    """
    path = Path(os.path.realpath(path))  # of a link, the file that it leads to
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"  # `remove_abandoned` knows this form
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hold(path: str | Path) -> int:
    """Returns the descriptor of a lock, which lasts until it is closed or the process ends.

    Makes the file, of mode 0600, if it is not there. BlockingIOError if the lock is held already; OSError if the file
    cannot be made or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(path: str | Path) -> None:
    """Removes what killed processes left of `write_whole`. Nobody else may be writing this file: see `hold`."""
    path = Path(os.path.realpath(path))
    abandoned = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{16}")
    for found in [one for one in path.parent.iterdir() if abandoned.fullmatch(one.name)]:
        found.unlink(missing_ok=True)
