"""A command's standard output and standard error. In a daemon, writing to them never waits for a reader.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon both write on a thread of their own (`Writer`), and of what nobody reads

- standard output keeps every line, save those that `Output.offer` gets: the events of rounds, which do not wait. The
  other events are few, or results, whose producer waits for `room`;
- standard error drops lines, and counts them.
"""

import asyncio
import atexit
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TextIO

from goodspeed.errors import OutputError
from goodspeed.serving.writer import Writer

LAST_WORD_S = 5.0
"""Time that a daemon that ends waits for its readers. A pipe with a reader takes all that waits in milliseconds."""

LOOK_S = 0.05
"""Interval at which `room` looks for room."""


class Stream(ABC):
    """Passes everything on to another stream, or texts to a writer as soon as they are flushed or a line ends."""

    IS_DROPPABLE: bool

    def __init__(self, stream: Any, writer: Writer | None = None) -> None:
        self.writer = writer
        self._stream = stream
        self._unflushed: list[str] = []
        self._lock = threading.RLock()  # a garbage collection under it may log, on the same thread

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

    @abstractmethod
    def check(self) -> None:
        """Raises what went wrong in the writer, if that matters."""

    @abstractmethod
    def _failures(self) -> AbstractContextManager[None]:
        """Handles failures to write without a writer."""

    @abstractmethod
    def dropped(self, num_lines: int) -> str:
        """Returns the line that tells how many were dropped."""

    @abstractmethod
    def failed(self, error: OSError) -> None:
        """Hears, on the writer's thread, why a line could not be written."""


class Output(Stream):
    """Standard output. Raises OutputError when it cannot be written to, BrokenPipeError when its reader is gone.

    With a writer, whoever writes next hears of it, and what `on_failure` sets is called once, on whatever thread.
    """

    IS_DROPPABLE = False

    def __init__(self, stream: Any, writer: Writer | None = None) -> None:
        super().__init__(stream, writer)
        self._on_failure: Callable[[], None] | None = None
        self._error: OSError | None = None

    def offer(self, line: str) -> None:
        """Prints a line that a daemon drops where too much waits."""
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
        """Sets what is called, on whatever thread, when the writer fails, or at once if it has failed."""
        self._on_failure = call
        if self._error is not None:
            self._tell()

    def _tell(self) -> None:
        """Calls what `on_failure` set, once, however many lines fail; either thread may set or take it meanwhile."""
        with self._lock:
            call, self._on_failure = self._on_failure, None
        if call is not None:
            call()

    def discard(self) -> None:
        """Sends the rest to /dev/null and forgets the failure: else Python reports an error when it flushes at exit."""
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


class Log(Stream):
    """Standard error. A line that cannot be written is lost; later lines are tried again."""

    IS_DROPPABLE = True

    def __init__(self, stream: Any, name: str = "", writer: Writer | None = None) -> None:
        """name: of the command, which is to begin each line of its own."""
        super().__init__(stream, writer)
        self._name = name

    def dropped(self, num_lines: int) -> str:
        return f"{self._name}: nobody read standard error for a while; lines dropped: {num_lines}"

    def check(self) -> None:
        """Raises nothing: a line that failed is lost."""

    def failed(self, error: OSError) -> None:
        """Loses the line."""

    def _failures(self) -> AbstractContextManager[None]:
        return suppress(OSError, ValueError)  # ValueError: the stream was closed in Python


def _cannot_be_written(error: OSError) -> OSError | OutputError:
    if isinstance(error, BrokenPipeError):
        return error
    why = error.strerror or type(error).__name__
    return OutputError(f"standard output cannot be written to ({why}); what was to be printed is lost")


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Replaces `sys.stdout` and `sys.stderr` by `Output` and `Log`; a second call changes nothing.

    First opens /dev/null, read-only, on each of 0, 1 and 2 that is closed: otherwise the next socket or file would get
    that number, and what a library prints would go into it. Where `sys.stderr` is None, `print(..., file=sys.stderr)`
    would print on standard output.
    """
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    if not isinstance(sys.stdout, Output):
        stdout = _or_descriptor(sys.stdout, 1)
        sys.stdout = Output(stdout, _writer(stdout) if daemon else None)
    if not isinstance(sys.stderr, Log):
        stderr = _or_descriptor(sys.stderr, 2)
        sys.stderr = Log(stderr, name, _writer(stderr, sys.stdout.writer) if daemon else None)
        if daemon:
            atexit.register(finish)  # a traceback is printed after all else


def output() -> Output:
    """Returns standard output: the guarded one, or one that passes everything on where `guard` was not called."""
    return sys.stdout if isinstance(sys.stdout, Output) else Output(sys.stdout)


async def room() -> None:
    """Waits while too much waits for the reader of a daemon's standard output, so that results need not be dropped."""
    while (writer := output().writer) is not None and writer.is_full:
        await asyncio.sleep(LOOK_S)


def wait() -> None:
    """Waits until a daemon's standard output is written, as long as that takes: for results."""
    stdout = output()
    stdout.flush()
    if stdout.writer is not None:
        stdout.writer.wait()
    stdout.check()


def keep_last_words() -> None:
    """Begins the end of a daemon: from now on nothing that it says is dropped."""
    for _, writer in _written():
        writer.keep_last_words()


def finish() -> None:
    """Ends a daemon's streams: waits until all is written, but not longer than LAST_WORD_S in all."""
    ends_at = time.monotonic() + LAST_WORD_S
    for stream, writer in _written():
        stream.flush()
        writer.finish(ends_at)


def _written() -> Iterator[tuple[Stream, Writer]]:
    """Yields standard output and standard error, as far as they have a writer, with it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Stream) and stream.writer is not None:
            yield stream, stream.writer


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
