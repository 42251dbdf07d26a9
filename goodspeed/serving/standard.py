"""Puts a command's standard streams in place, and ends them. In a daemon, writing to them never waits for a reader."""

import asyncio
import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from goodspeed.serving.output import Log, Output
from goodspeed.serving.writer import Writer

DESCRIPTORS = (0, 1, 2)

LAST_WORD_S = 5.0
"""How long a daemon that ends waits for its readers. A pipe with a reader takes all that waits in milliseconds."""

LOOK_S = 0.05
"""How often whoever waits for room looks for it."""


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Replaces `sys.stdout` and `sys.stderr` by `Output` and `Log`; a second call changes nothing.

    First opens /dev/null, read-only, on each of 0, 1 and 2 that is closed: otherwise the next socket or file would get
    that number, and what a library prints would go into it. Where `sys.stderr` is None, `print(..., file=sys.stderr)`
    would print on standard output.
    """
    for descriptor in DESCRIPTORS:
        _occupy(descriptor)
    if not isinstance(sys.stdout, Output):
        stdout = _or_descriptor(sys.stdout, 1)
        sys.stdout = Output(stdout, _writer(stdout) if daemon else None)
    if not isinstance(sys.stderr, Log):
        stderr = _or_descriptor(sys.stderr, 2)
        sys.stderr = Log(stderr, name, _writer(stderr, sys.stdout.writer) if daemon else None)
        if daemon:
            atexit.register(finish)  # a traceback is printed after all else


def on_failure(call: Callable[[], None] | None) -> None:
    """Sets what is called, on whatever thread, when a daemon's standard output fails, or if it has failed."""
    if isinstance(sys.stdout, Output):
        sys.stdout.on_failure(call)


def check() -> None:
    """Raises OutputError or BrokenPipeError where a daemon's standard output failed."""
    if isinstance(sys.stdout, Output):
        sys.stdout.check()


async def room() -> None:
    """Waits while too much waits for the reader of a daemon's standard output, so that results need not be dropped."""
    while isinstance(sys.stdout, Output) and sys.stdout.writer is not None and sys.stdout.writer.is_full:
        await asyncio.sleep(LOOK_S)


def flush() -> None:
    """Flushes standard output; OutputError or BrokenPipeError where it fails. A daemon waits as in `finish`."""
    sys.stdout.flush()
    finish()
    check()


def keep_last_words() -> None:
    """Begins the end of a daemon: from now on nothing that it says is dropped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output | Log) and stream.writer is not None:
            stream.writer.keep_last_words()


def wait() -> None:
    """Waits until a daemon's standard output is written, as long as that takes: for results."""
    if isinstance(sys.stdout, Output) and sys.stdout.writer is not None:
        sys.stdout.flush()
        sys.stdout.writer.wait()
    check()


def finish() -> None:
    """Ends a daemon's streams: waits until all is written, but not longer than LAST_WORD_S in all."""
    ends_at = time.monotonic() + LAST_WORD_S
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output | Log) and stream.writer is not None:
            stream.flush()
            stream.writer.finish(ends_at)


def discard_output() -> None:
    """Sends the rest of standard output to /dev/null; otherwise Python reports an error when it flushes at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    if isinstance(sys.stdout, Output):
        sys.stdout.forgive()


def _writer(stream: TextIO, other: Writer | None = None) -> Writer | None:
    """Returns the stream's writer: the other one where both are the same file, as after `2>&1`.

    None for a stream without a descriptor, which nobody can leave unread.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    if other is not None and os.path.sameopenfile(descriptor, other.descriptor):
        return other
    return Writer(descriptor)


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
