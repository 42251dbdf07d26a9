"""Writes to a descriptor on a separate thread, so that a slow reader blocks no other thread.

The descriptor stays blocking. O_NONBLOCK would affect every process that shares the open file (a shell and its
terminal, all writers of one pipe), and would not help with a slow disk.
"""

import os
import select
import threading
import time
from collections import Counter, deque
from typing import Protocol

MAX_WAITING = 1 << 20
"""Queued bytes beyond which droppable lines are dropped."""


class Source(Protocol):
    """A stream that writes through a Writer."""

    def dropped(self, num_lines: int) -> str:
        """Returns the line that reports how many lines were dropped."""
        ...

    def failed(self, error: OSError) -> None:
        """Receives, on the writer's thread, the error of a line that could not be written."""
        ...


class Writer:
    """Writes whole texts in the order of arrival; all streams to the same file share one writer.

    Once dropping begins, it lasts until the queue is empty. The number of dropped lines is reported then, or before the
    next line that is not droppable.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._waiting: deque[tuple[bytes, Source]] = deque()
        self._num_bytes = 0
        self._max_bytes = MAX_WAITING
        self._num_dropped: Counter[Source] = Counter()
        self._is_dropping = False
        self._ends_at: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        return self._num_bytes >= MAX_WAITING

    def put(self, text: bytes, source: Source, *, droppable: bool) -> None:
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

    def _append(self, text: bytes, source: Source) -> None:
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

    def _next(self) -> tuple[bytes, Source]:
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
