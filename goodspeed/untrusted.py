"""Files and untrusted input: reads up to a size limit, detects changes, and sanitizes text for logs and terminals.

The working directory is untrusted too: a process that runs a module with -m would import Python files from it.
"""

import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

MAX_CHARS = 300
"""Longest sanitized text; every refusal of a verify node fits, with its advice."""

MAX_QUOTED = 40

_quotation = re.compile(r"(?<!\w)'[^']*(?:'|\Z)")  # does not match the apostrophe in "the node's"


def python_module(module: str) -> list[str]:
    """Returns the command that runs a module in a new process, to which the words of its command line are added.

    -P keeps the working directory out of the import path, unless this process imported goodspeed from there: a checkout
    need not be installed.
    """
    is_checkout = False
    with suppress(OSError):  # a deleted working directory
        is_checkout = Path.cwd() == Path(__file__).resolve().parents[1]
    return [sys.executable, *([] if is_checkout else ["-P"]), "-m", module]


def read_bytes(path: str | Path, max_bytes: int) -> bytes:
    """Reads a regular file of at most max_bytes. OSError for a longer or non-regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # O_NONBLOCK: opening a FIFO would block
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is no file")
        data = file.read(min(status.st_size, max_bytes) + 1)  # read() allocates the requested size
    if len(data) > max_bytes:
        raise OSError(0, f"it has more than {max_bytes} bytes")
    return data


def file_state(path: str | Path) -> tuple[int, ...] | None:
    """Returns values that change with a file; None if there is no file."""
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino


def sanitize(text: str) -> str:
    """Returns at most 300 characters: unprintable ones become `?`, quotations of 40 or more become '...'."""
    printable = "".join(c if c.isprintable() else "?" for c in text[:1000])
    short = _quotation.sub(lambda found: found[0] if len(found[0]) < MAX_QUOTED + 2 else "'...'", printable)
    return short if len(short) <= MAX_CHARS else short[: MAX_CHARS - 3] + "..."
