"""A command's standard output and standard error. In a daemon, writing to them never blocks.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon a separate thread writes (`Writer`). If the reader is too slow,

- standard output queues all lines but those of `Output.offer`, the events of rounds, which it drops and counts. Other
  events are few, or results whose producer waits for `room`;
- standard error drops and counts lines.
"""

import asyncio
import atexit
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TextIO

from goodspeed.errors import OutputError
from goodspeed.serving.output.writer import Writer

LAST_WORD_S = 5.0
"""Longest time that an ending daemon waits for its output to be read. An active reader takes milliseconds."""

LOOK_S = 0.05
"""Interval at which `room` checks the queue."""


class Stream:
    """Passes texts to another stream. With a writer, passes them to it at each flush and line end instead.

    A text that cannot be written is lost; later ones are still tried.
    """

    IS_DROPPABLE = True

    def __init__(self, stream: Any, name: str = "", writer: Writer | None = None) -> None:
        """name: the command's, the prefix of the stream's own lines."""
        self.writer = writer
        self._stream = stream
        self._name = name
        self._unflushed: list[str] = []
        self._lock = threading.RLock()  # reentrant: a garbage collection may log on the same thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self.writer is None:
            with self._failures():
                self._stream.write(text)
            return len(text)
        self.check()
        with self._lock:
            self._unflushed.append(text)
        if text.endswith("\n"):
            self.flush()
        return len(text)

    def flush(self) -> None:
        if self.writer is None:
            with self._failures():
                self._stream.flush()
            return
        with self._lock:
            texts, self._unflushed = self._unflushed, []
        if texts:
            self._put("".join(texts), self.writer, droppable=self.IS_DROPPABLE)

    def _put(self, text: str, writer: Writer, *, droppable: bool) -> None:
        writer.put(text.encode(self._stream.encoding, self._stream.errors), self, droppable=droppable)

    def dropped(self, num_lines: int) -> str:
        """Returns the line that reports how many lines were dropped."""
        return f"{self._name}: standard error was not read for a while; lines dropped: {num_lines}"

    def check(self) -> None:
        """Raises the writer's failure, if this stream reports failures."""

    def failed(self, error: OSError) -> None:
        """Receives, on the writer's thread, the error of a line that could not be written."""

    def _failures(self) -> AbstractContextManager[None]:
        """Catches failed writes where no writer handles them."""
        return suppress(OSError, ValueError)  # ValueError: the stream was closed in Python


class Output(Stream):
    """Standard output. Raises OutputError if it cannot be written to, BrokenPipeError if its reader is gone.

    With a writer, the next call raises the error, and the callback of `on_failure` is called once, on any thread.
    """

    IS_DROPPABLE = False

    def __init__(self, stream: Any, writer: Writer | None = None) -> None:
        super().__init__(stream, writer=writer)
        self._on_failure: Callable[[], None] | None = None
        self._error: OSError | None = None

    def offer(self, line: str) -> None:
        """Prints a line that a daemon may drop while too much output is queued."""
        if self.writer is None:
            print(line, file=self, flush=True)
            return
        self.flush()
        self.check()
        self._put(f"{line}\n", self.writer, droppable=True)

    def check(self) -> None:
        if self._error is not None:
            raise _cannot_be_written(self._error) from None

    def dropped(self, num_lines: int) -> str:
        return json.dumps({"event": "dropped", "num_lines": num_lines}, separators=(",", ":"))

    def failed(self, error: OSError) -> None:
        self._error = error
        self._tell()

    def on_failure(self, call: Callable[[], None] | None) -> None:
        """Sets the callback for the writer's failure, on any thread; called at once if it failed already."""
        self._on_failure = call
        if self._error is not None:
            self._tell()

    def _tell(self) -> None:
        """Calls the callback of `on_failure` once, however many lines fail. Thread-safe."""
        with self._lock:
            call, self._on_failure = self._on_failure, None
        if call is not None:
            call()

    def discard(self) -> None:
        """Redirects further output to /dev/null and clears the failure: else Python's flush at exit would report it."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        self._error = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _cannot_be_written(error) from None


def _cannot_be_written(error: OSError) -> OSError | OutputError:
    if isinstance(error, BrokenPipeError):
        return error
    why = error.strerror or type(error).__name__
    return OutputError(f"standard output cannot be written to ({why}); the output is lost")


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Replaces `sys.stdout` and `sys.stderr` by `Output` and `Stream`; a second call does nothing.

    First opens /dev/null, read-only, on each closed descriptor of 0, 1 and 2: otherwise the next socket or file would
    get that number, and a library's prints would go into it. Also replaces a `sys.stderr` of None, for which
    `print(..., file=sys.stderr)` would print on standard output. Escapes characters that standard output's encoding
    lacks, as Python does for standard error.
    """
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    if not isinstance(sys.stdout, Output):
        stdout = _or_descriptor(sys.stdout, 1)
        if isinstance(stdout, io.TextIOWrapper) and stdout.errors in ("strict", "surrogateescape"):
            stdout.reconfigure(errors="backslashreplace")
        sys.stdout = Output(stdout, _writer(stdout) if daemon else None)
    if not isinstance(sys.stderr, Stream):
        stderr = _or_descriptor(sys.stderr, 2)
        sys.stderr = Stream(stderr, name, _writer(stderr, sys.stdout.writer) if daemon else None)
        if daemon:
            atexit.register(finish)  # tracebacks come last


def output() -> Output:
    """Returns standard output as an `Output`; without `guard`, a wrapper that passes everything on."""
    return sys.stdout if isinstance(sys.stdout, Output) else Output(sys.stdout)


async def room() -> None:
    """Waits while too much of a daemon's standard output is queued, so that no result has to be dropped."""
    while (writer := output().writer) is not None and writer.is_full:
        await asyncio.sleep(LOOK_S)


def wait() -> None:
    """Waits without a time limit until a daemon's standard output is written: for results."""
    stdout = output()
    stdout.flush()
    if stdout.writer is not None:
        stdout.writer.wait()
    stdout.check()


def keep_last_words() -> None:
    """Stops dropping lines, because the daemon is about to end."""
    for _, writer in _written():
        writer.keep_last_words()


def finish() -> None:
    """Flushes a daemon's streams; waits at most LAST_WORD_S in total until all is written."""
    ends_at = time.monotonic() + LAST_WORD_S
    for stream, writer in _written():
        stream.flush()
        writer.finish(ends_at)


def _written() -> Iterator[tuple[Stream, Writer]]:
    """Yields standard output and standard error with their writers, skipping streams without one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Stream) and stream.writer is not None:
            yield stream, stream.writer


def _writer(stream: TextIO, other: Writer | None = None) -> Writer | None:
    """Returns a stream's writer: `other` if both write to the same file, as after `2>&1`.

    None for a stream without a descriptor, which cannot block.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    if other is not None and os.path.sameopenfile(descriptor, other.descriptor):
        return other
    return Writer(descriptor)


def _or_descriptor(stream: TextIO | None, descriptor: int) -> TextIO:
    """Returns the stream. None (its descriptor was closed): a stream on the descriptor, whose writes fail."""
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
