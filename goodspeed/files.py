"""Replaces private files atomically, so that readers find either the old contents or the new ones, whole."""

import os
import stat
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
