"""A command's standard output and standard error. In a daemon, writing to them never blocks.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon a separate thread writes (`Writer`). If the reader is too slow,

- standard output queues all lines but those of `offer`, the events of rounds, which it drops and counts. Other events
  are few, or results whose producer waits for `room`;
- standard error drops and counts lines.
"""

import asyncio
import atexit
import io
import json
import os
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from goodspeed.errors import OutputError

LAST_WORD_S = 5.0
"""Longest time that an ending daemon waits for its output to be read. An active reader takes milliseconds."""

LOOK_S = 0.05
"""Interval at which `room` checks the queue."""

MAX_WAITING = 1 << 20
"""Queued bytes beyond which droppable lines are dropped."""


class Writer:
    """Writes whole texts in the order of arrival, on a thread of its own; all streams to the same file share one.

    Once dropping begins, it lasts until the queue is empty. The number of dropped lines is reported then, or before the
    next line that is not droppable. The descriptor stays blocking: O_NONBLOCK would affect every process that shares
    the open file (a shell and its terminal, all writers of one pipe), and would not help with a slow disk.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._waiting: deque[tuple[bytes, Log]] = deque()
        self._num_bytes = 0
        self._max_bytes = MAX_WAITING
        self._num_dropped: Counter[Log] = Counter()
        self._is_dropping = False
        self._ends_at: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        return self._num_bytes >= MAX_WAITING

    def put(self, text: bytes, source: "Log", *, droppable: bool) -> None:
        """Queues a text. droppable: dropped and counted if too much is queued before it."""
        with self._changed:
            is_full = self._num_bytes > 0 and self._num_bytes + len(text) > self._max_bytes
            if droppable and (self._is_dropping or is_full):
                self._is_dropping = True
                self._num_dropped[source] += 1
                return
            self._tell_dropped()
            self._append(text, source)

    def keep_last_words(self) -> None:
        """Stops dropping, because the process ends: the queue may grow by another MAX_WAITING bytes."""
        with self._changed:
            self._max_bytes = self._num_bytes + MAX_WAITING
            self._is_dropping = False

    def wait(self) -> None:
        """Waits without a time limit until the queue is written."""
        with self._changed:
            self._changed.wait_for(self._is_done)

    def finish(self, ends_at: float) -> None:
        """Waits until the queue is written, at most until ends_at (`time.monotonic`) of the first call."""
        with self._changed:
            self._ends_at = self._ends_at or ends_at
            self._changed.wait_for(self._is_done, max(0.0, self._ends_at - time.monotonic()))

    def _is_done(self) -> bool:
        return not self._waiting and not self._num_dropped

    def _append(self, text: bytes, source: "Log") -> None:
        self._waiting.append((text, source))
        self._num_bytes += len(text)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"writer of {self.descriptor}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _tell_dropped(self) -> None:
        while self._num_dropped:  # no iterator: a garbage collection may log on the same thread
            source, num_lines = self._num_dropped.popitem()
            self._append(source.dropped(num_lines).encode() + b"\n", source)

    def _run(self) -> None:
        while True:
            text, source = self._next()
            try:
                write_all(self.descriptor, text)
            except OSError as error:
                source.failed(error)
            with self._changed:
                self._waiting.popleft()
                self._num_bytes -= len(text)
                if not self._waiting:
                    self._is_dropping = False
                    self._tell_dropped()
                self._changed.notify_all()

    def _next(self) -> tuple[bytes, "Log"]:
        """Waits for the next text; it stays in the queue until written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            return self._waiting[0]


def write_all(descriptor: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process made the open file non-blocking
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


class Log(io.RawIOBase):
    """Where standard error writes: a descriptor, or in a daemon its writer. What cannot be written is lost; what comes
    later is still tried."""

    is_droppable = True

    def __init__(self, descriptor: int, writer: Writer | None = None, name: str = "") -> None:
        """name: the command's, the prefix of the log's own lines."""
        super().__init__()
        self.writer = writer
        self.name = name
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: Any, /) -> int:
        self.put(bytes(text), droppable=self.is_droppable)
        return len(text)

    def put(self, text: bytes, *, droppable: bool) -> None:
        self.check()
        if self.writer is not None:
            self.writer.put(text, self, droppable=droppable)
            return
        try:
            write_all(self._descriptor, text)
        except OSError as error:
            self.failed(error)
            self.check()

    def dropped(self, num_lines: int) -> str:
        """Returns the line that reports how many lines were dropped."""
        return f"{self.name}: standard error was not read for a while; lines dropped: {num_lines}"

    def check(self) -> None:
        """Raises the failure, if this is standard output."""

    def failed(self, error: OSError) -> None:
        """Receives, on the writer's thread if there is one, the error of a line that could not be written."""


class Output(Log):
    """Where standard output writes. Raises OutputError if it cannot be written to, BrokenPipeError if its reader is
    gone.

    With a writer, the next call raises the error, and the callback of `on_failure` is called once, on any thread.
    """

    is_droppable = False
    _error: OSError | None = None
    _on_failure: Callable[[], None] | None = None
    _lock = threading.Lock()

    def check(self) -> None:
        if isinstance(self._error, BrokenPipeError):
            raise self._error from None
        if self._error is not None:
            why = self._error.strerror or type(self._error).__name__
            raise OutputError(f"standard output cannot be written to ({why}); the output is lost")

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
        nowhere = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError):
            os.dup2(nowhere, self._descriptor)
        os.close(nowhere)
        self._error = None


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Lets `sys.stdout` and `sys.stderr` write to an `Output` and a `Log`; a second call does nothing.

    First opens /dev/null, read-only, on each closed descriptor of 0, 1 and 2: otherwise the next socket or file would
    get that number, and a library's prints would go into it. Also replaces a `sys.stderr` of None, for which
    `print(..., file=sys.stderr)` would print on standard output. Escapes characters that an encoding lacks. Leaves a
    stream without a descriptor, which cannot block.
    """
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    ours = _target(sys.stdout)
    if ours is None and (descriptor := _descriptor(sys.stdout, 1)) >= 0:
        ours = Output(descriptor, Writer(descriptor) if daemon else None)
        sys.stdout = _text(sys.stdout, ours, line_buffering=daemon or ours.isatty())
    if _target(sys.stderr) is None and (descriptor := _descriptor(sys.stderr, 2)) >= 0:
        writer = _writer(descriptor, ours) if daemon else None
        sys.stderr = _text(sys.stderr, Log(descriptor, writer, name), line_buffering=True)
        if daemon:
            atexit.register(finish)  # tracebacks come last


def stdout() -> Output:
    """Returns where standard output writes; without `guard`, an `Output` of nothing."""
    ours = _target(sys.stdout)
    return ours if isinstance(ours, Output) else Output(-1)


def offer(line: str, stream: TextIO) -> None:
    """Prints a line that a daemon may drop while too much output is queued."""
    stream.flush()
    ours = _target(stream)
    if ours is None:
        print(line, file=stream, flush=True)
    else:
        ours.put(f"{line}\n".encode(stream.encoding, stream.errors or "strict"), droppable=True)


async def room() -> None:
    """Waits while too much of a daemon's standard output is queued, so that no result has to be dropped."""
    while (writer := stdout().writer) is not None and writer.is_full:
        await asyncio.sleep(LOOK_S)


def wait() -> None:
    """Waits without a time limit until a daemon's standard output is written: for results."""
    sys.stdout.flush()
    if (writer := stdout().writer) is not None:
        writer.wait()
    stdout().check()


def keep_last_words() -> None:
    """Stops dropping lines, because the daemon is about to end."""
    for _, writer in _written():
        writer.keep_last_words()


def finish() -> None:
    """Flushes a daemon's streams; waits at most LAST_WORD_S in total until all is written."""
    ends_at = time.monotonic() + LAST_WORD_S
    for stream, writer in _written():
        with suppress(OutputError, BrokenPipeError):  # `check` reports it
            stream.flush()
        writer.finish(ends_at)


def _written() -> Iterator[tuple[TextIO, Writer]]:
    """Yields standard output and standard error with their writers, skipping streams without one."""
    for stream in (sys.stdout, sys.stderr):
        ours = _target(stream)
        if ours is not None and ours.writer is not None:
            yield stream, ours.writer


def _target(stream: TextIO | None) -> Log | None:
    """Returns where a stream writes, if `guard` set it."""
    found = getattr(stream, "buffer", None)
    return found if isinstance(found, Log) else None


def _writer(descriptor: int, other: Log | None) -> Writer:
    """Returns standard error's writer: that of standard output if both write to the same file, as after `2>&1`."""
    if other is not None and other.writer is not None and os.path.sameopenfile(descriptor, other.fileno()):
        return other.writer
    return Writer(descriptor)


def _text(old: TextIO | None, ours: Log, *, line_buffering: bool) -> TextIO:
    """Returns a stream in the old one's encoding. old: None if its descriptor was closed."""
    encoding, errors = (old.encoding, old.errors) if old is not None else ("utf-8", None)
    if errors in (None, "strict", "surrogateescape"):
        errors = "backslashreplace"
    return io.TextIOWrapper(ours, encoding, errors, line_buffering=line_buffering)


def _descriptor(stream: TextIO | None, default: int) -> int:
    """Returns a stream's descriptor, or -1 without one. None (its descriptor was closed): the default."""
    if stream is None:
        return default
    try:
        stream.flush()
        return stream.fileno()
    except (OSError, ValueError):
        return -1


def _occupy(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # Read-only, so that writing to it fails instead of losing data silently.
        found = os.open(os.devnull, os.O_RDONLY)
        if found != descriptor:
            os.dup2(found, descriptor)
            os.close(found)
