"""What comes from outside: files read within a bound, and words made fit for a log or a terminal.

Knows nothing about what is in them.
"""

import os
import re
import stat
from functools import partial
from pathlib import Path

_cut_quotes = partial(re.compile(r"'[^']{40,}'?").sub, "'...'")


def read_bytes(path: str | Path, max_bytes: int) -> bytes:
    """A file that is not longer; costs what is in it. OSError for one that is, and for what is no file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would be waited for
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is no file")
        data = file.read(min(status.st_size, max_bytes) + 1)  # allocates as much as is asked for
    if len(data) > max_bytes:
        raise OSError(0, f"it has more than {max_bytes} bytes")
    return data


def harmless(text: str) -> str:
    """Somebody's words: printable, and never at length."""
    printable = "".join(c if c.isprintable() else "?" for c in text[:1000])
    return _cut_quotes(printable)[:200]
