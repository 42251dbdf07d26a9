"""Replaces private files atomically, so that readers find either the old contents or the new ones, whole; locks."""

import fcntl
import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path


def others_can_read(path: str | Path) -> bool:
    """Returns whether a file's mode lets others than its owner read or change it; OSError if there is none."""
    found = Path(path).stat()
    # systemd and Kubernetes let a node read through the group what root owns
    own = stat.S_IRWXG if found.st_uid == os.geteuid() else 0
    return bool(found.st_mode & (own | stat.S_IRWXO))


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes a file of mode 0600 under a temporary name beside `path`, then renames it; OSError if that fails."""
    path = Path(os.path.realpath(path))  # of a link, the file that it leads to
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Lock:
    """Lasts until it is released, or nothing refers to it any more, or the process ends. Then its file is removed; only
    a killed process leaves it, which does no harm."""

    def __init__(self, path: str | Path) -> None:
        """Makes the file, of mode 0600, if it is not there. BlockingIOError if the lock is held already; OSError if the
        file cannot be made or locked."""
        path = Path(path).absolute()
        self.release = weakref.finalize(self, _release, path, _locked(path))


def _locked(path: Path) -> int:
    """Returns a descriptor of the file that is now at this path, locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed this file after we had opened it


def _release(path: Path, descriptor: int) -> None:
    with suppress(OSError):  # in a folder that cannot be written to any more the file stays
        found = os.fstat(descriptor)
        if found.st_size == 0 and os.path.samestat(found, path.stat()):  # a file of somebody else is not removed
            path.unlink()
    os.close(descriptor)
