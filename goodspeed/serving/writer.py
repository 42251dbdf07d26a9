"""Write to a descriptor on a thread of its own, so that nobody waits for a reader who pauses.

The descriptor stays blocking. O_NONBLOCK would be set for every process that shares the open file (a shell and its
terminal, all that write into one pipe), and would not help with a slow disk.
"""

import os
import select
import threading
import time
from collections import Counter, deque
from typing import Protocol

MAX_WAITING = 1 << 20
"""Bytes that wait for their reader. Beyond them, lines that may be dropped are."""


class Source(Protocol):
    """A stream that writes through a Writer."""

    def dropped(self, num_lines: int) -> str:
        """Returns the line that tells how many were dropped."""
        ...

    def failed(self, error: OSError) -> None:
        """Hears, on the writer's thread, why a line could not be written."""
        ...


class Writer:
    """Writes each text whole, in the order in which they came; one writer for each file, whoever writes into it.

    Dropping goes on until all that waits is written; then, or before a line that is kept, the number is told.
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
        """Has a text written soon; a droppable one is dropped and counted where too much waits already."""
        with self._changed:
            if droppable and (self._is_dropping or self._num_bytes + len(text) > self._max_bytes):
                self._is_dropping = True
                self._num_dropped[source] += 1
                return
            self._tell_dropped()
            self._append(text, source)

    def keep_last_words(self) -> None:
        """Makes room once more, since the process ends: what is said from now on is not dropped, up to MAX_WAITING."""
        with self._changed:
            self._max_bytes = self._num_bytes + MAX_WAITING
            self._is_dropping = False

    def wait(self) -> None:
        """Waits until everything is written, however long that takes."""
        with self._changed:
            self._changed.wait_for(self._is_done)

    def finish(self, ends_at: float) -> None:
        """Waits for that until ends_at, of `time.monotonic`; of several calls the first one's counts."""
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
        while self._num_dropped:  # not a loop over it: a garbage collection meanwhile may log, on the same thread
            source, num_lines = self._num_dropped.popitem()
            self._append(source.dropped(num_lines).encode() + b"\n", source)

    def _run(self) -> None:
        while True:
            text, source = self._next()
            try:
                self._write(text)
            except OSError as error:
                source.failed(error)
            with self._changed:
                self._waiting.popleft()
                self._num_bytes -= len(text)
                self._changed.notify_all()

    def _next(self) -> tuple[bytes, Source]:
        """Waits for the text that is to be written now; it counts as waiting until it is."""
        with self._changed:
            if not self._waiting:
                self._is_dropping = False
                self._tell_dropped()
            self._changed.wait_for(lambda: self._waiting)
            return self._waiting[0]

    def _write(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except BlockingIOError:  # another process made the open file non-blocking
                poll = select.poll()
                poll.register(self.descriptor, select.POLLOUT)
                poll.poll()
