"""A command's standard output and standard error. In a daemon, writing to them never blocks.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon each has a thread that writes. If the reader is too slow,

- standard output queues all lines but those of `offer`, the events of rounds, which it drops and counts. Other events
  are few, or results whose producer waits for `room`;
- standard error drops and counts lines.
"""

import asyncio
import io
import json
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TextIO

from goodspeed.errors import OutputError

LAST_WORD_S = 5.0
"""Longest time that an ending daemon waits for each stream to be read. An active reader takes milliseconds."""

LOOK_S = 0.05
"""Interval at which `room` checks the queue."""

MAX_WAITING = 1 << 20
"""Queued bytes beyond which droppable lines are dropped."""


class Stream(io.RawIOBase):
    """Writes standard output or standard error: at once, or in a daemon by a thread, through a queue.

    The descriptor stays blocking: O_NONBLOCK would affect every process that shares the open file (a shell and its
    terminal, all writers of one pipe), and would not help with a slow disk.
    """

    def __init__(self, descriptor: int, name: str = "", *, is_result: bool, is_daemon: bool = False) -> None:
        """name: the command's, in the report of lost log lines."""
        super().__init__()
        self.is_result = is_result
        self._descriptor = descriptor
        self.name = name
        self._error: OSError | None = None
        self._on_failure: Callable[[], object] | None = None
        self._is_lost = False  # what is still written
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()  # None: the end
        self._num_bytes = 0  # in the queue, or being written
        self._num_dropped = 0
        # Reentrant: a finalizer that a garbage collection runs while a line is queued may log one.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        if is_daemon:
            self._thread = threading.Thread(target=self._run, name=f"writer of {descriptor}", daemon=True)
            self._thread.start()

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
        if self._thread is None:
            self._write(text)
            self.check()
            return
        with self._lock:
            if droppable and self._num_bytes > 0 and self._num_bytes + len(text) > MAX_WAITING:
                self._num_dropped += 1
                return
            text = self._dropped() + text
            self._num_bytes += len(text)
            self._waiting.put(text)

    def finish(self, timeout_s: float | None) -> None:
        """Waits until the queue is written, at most timeout_s; later texts are written at once, or lost if it is not.

        timeout_s: None: however long it takes.
        """
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._waiting.put(None)
            thread.join(timeout_s)
            self._is_lost |= thread.is_alive()

    def check(self) -> None:
        """Raises the failure of standard output: BrokenPipeError if its reader is gone, else OutputError."""
        if isinstance(self._error, BrokenPipeError):
            raise self._error from None
        if self._error is not None:
            why = self._error.strerror or type(self._error).__name__
            raise OutputError(f"standard output cannot be written to ({why}); the output is lost")

    def on_failure(self, call: Callable[[], object] | None) -> None:
        """Sets the callback for the thread's failure, on any thread; called at once if it failed already."""
        self._on_failure = call
        if call is not None and self._error is not None:
            call()

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            self._write(text)
            with self._lock:
                self._num_bytes -= len(text)
                told = b"" if self._num_bytes else self._dropped()
            self._write(told)

    def _dropped(self) -> bytes:
        """Returns the line that reports how many lines were dropped, if any, and counts from 0 again."""
        num_lines, self._num_dropped = self._num_dropped, 0
        if not num_lines:
            return b""
        if self.is_result:
            line = json.dumps({"event": "dropped", "num_lines": num_lines}, separators=(",", ":"))
        else:
            line = f"{self.name}: standard error was not read for a while; lines dropped: {num_lines}"
        return f"{line}\n".encode()

    def _write(self, text: bytes) -> None:
        rest = memoryview(b"" if self._is_lost else text)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # another process made the open file non-blocking
                    select.select([], [self._descriptor], [])
        except OSError as error:
            if self.is_result:
                self._error, self._is_lost = error, True
                if self._on_failure is not None:
                    self._on_failure()


def guard(name: str = "", *, daemon: bool = False) -> None:
    """Lets `sys.stdout` and `sys.stderr` write to a `Stream`, and escape characters that their encodings lack.

    First opens /dev/null on each closed descriptor of 0, 1 and 2: otherwise the next socket or file would get that
    number, and a library's prints would go into it. Read-only: writing there fails instead of losing data silently.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = _guarded(sys.stdout, 1, name, is_result=True, is_daemon=daemon)
    sys.stderr = _guarded(sys.stderr, 2, name, is_result=False, is_daemon=daemon)


def _guarded(stream: TextIO | None, descriptor: int, name: str, *, is_result: bool, is_daemon: bool) -> TextIO:
    """Returns a stream of ours in place of a stream; the stream itself if it has no descriptor, so it cannot block.

    stream: None if its descriptor was closed when Python started.
    """
    if stream is not None:
        try:
            descriptor = stream.fileno()
        except OSError:
            return stream
    ours = Stream(descriptor, name, is_result=is_result, is_daemon=is_daemon)
    line_buffering = is_daemon or not is_result or ours.isatty()
    encoding = stream.encoding if stream is not None else "utf-8"
    return io.TextIOWrapper(ours, encoding, "backslashreplace", line_buffering=line_buffering)


def _ours(stream: TextIO) -> Stream | None:
    """Returns where a stream writes, if `guard` set it."""
    found = getattr(stream, "buffer", None)
    return found if isinstance(found, Stream) else None


def stdout() -> Stream:
    """Returns where standard output writes; without `guard`, a stream of nothing."""
    return _ours(sys.stdout) or Stream(-1, is_result=True)


def offer(line: str) -> None:
    """Prints a line that a daemon may drop while too much output is queued."""
    sys.stdout.flush()
    if (ours := _ours(sys.stdout)) is not None:
        ours.put(f"{line}\n".encode(sys.stdout.encoding, "backslashreplace"), droppable=True)
    else:
        print(line, flush=True)


async def room() -> None:
    """Waits while too much of a daemon's standard output is queued, so that no result has to be dropped."""
    while stdout().is_full:
        await asyncio.sleep(LOOK_S)


def check(timeout_s: float | None = LAST_WORD_S) -> None:
    """Waits until a command's result is written, at most timeout_s; raises the failure of standard output."""
    sys.stdout.flush()
    stdout().finish(timeout_s)
    stdout().check()


def finish() -> None:
    """Writes both streams at the end of a command; what nobody reads for LAST_WORD_S is lost."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OutputError, BrokenPipeError):  # `check` reported it
            stream.flush()
        if (ours := _ours(stream)) is not None:
            ours.finish(LAST_WORD_S)
