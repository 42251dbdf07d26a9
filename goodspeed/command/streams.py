"""Standard output and standard error that may fail: a full disk, or a closed descriptor.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a
log, so a failure there loses only the line. Knows nothing about what is written.
"""

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from goodspeed.errors import OutputError

DESCRIPTORS = (0, 1, 2)


def guard() -> None:
    """Replaces `sys.stdout` and `sys.stderr` by `Output` and `Log`; a second call changes nothing.

    First opens /dev/null, read-only, on each of 0, 1 and 2 that is closed: otherwise the next socket or file would get
    that number, and what a library prints would go into it. Where `sys.stderr` is None, `print(..., file=sys.stderr)`
    would print on standard output.
    """
    for descriptor in DESCRIPTORS:
        _occupy(descriptor)
    if not isinstance(sys.stdout, Output):
        sys.stdout = Output(_or_descriptor(sys.stdout, 1))
    if not isinstance(sys.stderr, Log):
        sys.stderr = Log(_or_descriptor(sys.stderr, 2))


def discard_output() -> None:
    """Sends the rest of standard output to /dev/null; otherwise Python reports an error when it flushes at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _Stream:
    """Passes everything on to another stream; subclasses handle failures of `write` and `flush`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Output(_Stream):
    """Standard output. Raises OutputError when it cannot be written to, BrokenPipeError when its reader is gone."""

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _cannot_be_written(error) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _cannot_be_written(error) from None


class Log(_Stream):
    """Standard error. A line that cannot be written is lost; later lines are tried again."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream was closed in Python
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _cannot_be_written(error: OSError) -> OutputError:
    why = error.strerror or type(error).__name__
    return OutputError(f"standard output cannot be written to ({why}); what was to be printed is lost")


def _or_descriptor(stream: TextIO | None, descriptor: int) -> TextIO:
    """Returns the stream; for None (its descriptor was closed) one on that descriptor, which fails when written to."""
    return stream if stream is not None else os.fdopen(descriptor, "w", encoding="utf-8", closefd=False)


def _occupy(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # Read-only, so that writing to it fails instead of losing data silently.
        found = os.open(os.devnull, os.O_RDONLY)
        if found != descriptor:
            os.dup2(found, descriptor)
            os.close(found)
