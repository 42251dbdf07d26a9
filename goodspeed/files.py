"""Replaces private files atomically, so that readers find either the old contents or the new ones, whole."""

import os
from pathlib import Path


def write_whole(path: str | Path, data: bytes, *, durable: bool = False) -> None:
    """Writes a file of mode 0600 under a temporary name beside `path`, then renames it; OSError if that fails.

    durable: waits for the disk, so that the new contents survive a power failure.
    """
    path = Path(os.path.realpath(path))  # of a link, the file that it leads to
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
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
