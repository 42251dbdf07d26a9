"""A command's standard output and standard error. In a daemon, writing to them never blocks.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon each has a thread that writes. If the reader is too slow,

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
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, TextIO

from goodspeed.errors import OutputError

LAST_WORD_S = 5.0
"""Longest time that an ending daemon waits for its output to be read. An active reader takes milliseconds."""

LOOK_S = 0.05
"""Interval at which `room` checks the queue."""

MAX_WAITING = 1 << 20
"""Queued bytes beyond which droppable lines are dropped; an ending daemon may queue as many more."""


class Stream(io.RawIOBase):
    """Writes standard output or standard error: at once, or in a daemon by a thread, through a queue.

    Standard output raises OutputError if it cannot be written to, BrokenPipeError if its reader is gone; with a thread,
    the next call does, and the callback of `on_failure` is called once. Standard error loses the line.

    The descriptor stays blocking: O_NONBLOCK would affect every process that shares the open file (a shell and its
    terminal, all writers of one pipe), and would not help with a slow disk.
    """

    def __init__(
        self,
        descriptor: int,
        name: str = "",
        *,
        is_result: bool,
        is_daemon: bool = False,
        beside: "Stream | None" = None,
    ) -> None:
        """name: the command's, in the report of lost log lines. beside: the other stream; if both write to one file, as
        after `2>&1`, each line is written whole, and the order of the two streams is not fixed."""
        super().__init__()
        self.is_result = is_result
        self.is_daemon = is_daemon
        self._descriptor = descriptor
        self.name = name
        self._waiting: deque[bytes] = deque()  # the first one is being written
        self._num_bytes = 0
        self._num_dropped = 0
        self._max_bytes = MAX_WAITING
        self._ends_at: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        is_shared = beside is not None and os.path.sameopenfile(descriptor, beside.fileno())
        # Reentrant: a finalizer that a garbage collection runs while a line is written may log one.
        self._writing: AbstractContextManager[Any] = (
            beside._writing if beside is not None and is_shared else threading.RLock()
        )
        self._error: OSError | None = None
        self._on_failure: Callable[[], None] | None = None

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: Any, /) -> int:
        self.put(bytes(text), droppable=not self.is_result)
        return len(text)

    @property
    def is_full(self) -> bool:
        return self._num_bytes >= MAX_WAITING

    def put(self, text: bytes, *, droppable: bool) -> None:
        """Writes or queues a text. droppable: a daemon drops and counts it if too much is queued before it."""
        self.check()
        if not self.is_daemon:
            self._write(text)
            self.check()
            return
        with self._changed:
            is_full = self._num_bytes > 0 and self._num_bytes + len(text) > self._max_bytes
            if droppable and is_full:
                self._num_dropped += 1
            else:
                self._append(text)

    def keep_last_words(self) -> None:
        """Makes room for as much again, because the process ends."""
        with self._changed:
            self._max_bytes = self._num_bytes + MAX_WAITING

    def wait(self, ends_at: float | None = None) -> None:
        """Waits until the queue is written, at most until ends_at (`time.monotonic`) of the first such call."""
        with self._changed:
            self._ends_at = self._ends_at or ends_at
            left_s = None if ends_at is None or self._ends_at is None else max(0.0, self._ends_at - time.monotonic())
            self._changed.wait_for(lambda: not self._waiting and not self._num_dropped, left_s)

    def _append(self, text: bytes) -> None:
        if self._num_dropped:
            num_lines, self._num_dropped = self._num_dropped, 0
            text = self._dropped(num_lines).encode() + b"\n" + text
        self._waiting.append(text)
        self._num_bytes += len(text)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"writer of {self._descriptor}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _dropped(self, num_lines: int) -> str:
        """Returns the line that reports how many lines were dropped."""
        if self.is_result:
            return json.dumps({"event": "dropped", "num_lines": num_lines}, separators=(",", ":"))
        return f"{self.name}: standard error was not read for a while; lines dropped: {num_lines}"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text = self._waiting[0]
            self._write(text)
            with self._changed:
                self._waiting.popleft()
                self._num_bytes -= len(text)
                if self._num_dropped and not self._waiting:
                    self._append(b"")
                self._changed.notify_all()

    def _write(self, text: bytes) -> None:
        try:
            with self._writing:
                write_all(self._descriptor, text)
        except OSError as error:
            if self.is_result:
                self._error = error
                self._tell()

    def check(self) -> None:
        """Raises the failure, if this is standard output."""
        if isinstance(self._error, BrokenPipeError):
            raise self._error from None
        if self._error is not None:
            why = self._error.strerror or type(self._error).__name__
            raise OutputError(f"standard output cannot be written to ({why}); the output is lost")

    def on_failure(self, call: Callable[[], None] | None) -> None:
        """Sets the callback for the thread's failure, on any thread; called at once if it failed already."""
        self._on_failure = call
        if self._error is not None:
            self._tell()

    def _tell(self) -> None:
        """Calls the callback of `on_failure` once, however many lines fail. Thread-safe."""
        with self._changed:
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


def write_all(descriptor: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process made the open file non-blocking
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Lets `sys.stdout` and `sys.stderr` write to a `Stream`; a second call does nothing.

    First opens /dev/null, read-only, on each closed descriptor of 0, 1 and 2: otherwise the next socket or file would
    get that number, and a library's prints would go into it. Also replaces a `sys.stderr` of None, for which
    `print(..., file=sys.stderr)` would print on standard output. Escapes characters that an encoding lacks. Leaves a
    stream without a descriptor, which cannot block.
    """
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    if _target(sys.stdout) is None and (descriptor := _descriptor(sys.stdout, 1)) >= 0:
        ours = Stream(descriptor, is_result=True, is_daemon=daemon)
        sys.stdout = _text(sys.stdout, ours, line_buffering=daemon or ours.isatty())
    if _target(sys.stderr) is None and (descriptor := _descriptor(sys.stderr, 2)) >= 0:
        ours = Stream(descriptor, name, is_result=False, is_daemon=daemon, beside=_target(sys.stdout))
        sys.stderr = _text(sys.stderr, ours, line_buffering=True)
        if daemon:
            atexit.register(finish)  # tracebacks come last


def stdout() -> Stream:
    """Returns where standard output writes; without `guard`, a stream of nothing."""
    return _target(sys.stdout) or Stream(-1, is_result=True)


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
    while stdout().is_full:
        await asyncio.sleep(LOOK_S)


def wait() -> None:
    """Waits without a time limit until a daemon's standard output is written: for results."""
    sys.stdout.flush()
    stdout().wait()
    stdout().check()


def keep_last_words() -> None:
    """Makes room for the last lines, because the daemon is about to end."""
    for stream in (sys.stdout, sys.stderr):
        if (ours := _target(stream)) is not None:
            ours.keep_last_words()


def finish() -> None:
    """Flushes a daemon's streams; waits at most LAST_WORD_S in total until all is written."""
    ends_at = time.monotonic() + LAST_WORD_S
    for stream in (sys.stdout, sys.stderr):
        if (ours := _target(stream)) is not None and ours.is_daemon:
            with suppress(OutputError, BrokenPipeError):  # `check` reports it
                stream.flush()
            ours.wait(ends_at)


def _target(stream: TextIO | None) -> Stream | None:
    """Returns where a stream writes, if `guard` set it."""
    found = getattr(stream, "buffer", None)
    return found if isinstance(found, Stream) else None


def _text(old: TextIO | None, ours: Stream, *, line_buffering: bool) -> TextIO:
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
