"""The streams that stand for standard output and standard error in a command.

Standard output carries a command's result, so a failure there is an OutputError. Standard error is a log, so a failure
there loses only the line. In a daemon both write through a `Writer`, and of what nobody reads

- standard output keeps every line, save those that `Output.offer` gets: the events of rounds, which do not wait. The
  other events are few, or results, and who makes results waits for room (`standard.room`);
- standard error drops lines: status lines and log lines.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from goodspeed.errors import OutputError
from goodspeed.serving.writer import Writer


class _Stream(ABC):
    """Passes everything on to another stream, or texts to a writer as soon as they are flushed or a line ends."""

    DROPPABLE: bool

    def __init__(self, stream: Any, writer: Writer | None = None) -> None:
        self.writer = writer
        self._stream = stream
        self._unflushed: list[str] = []
        self._lock = threading.RLock()  # a garbage collection under it may log, on the same thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _take(self, text: str, writer: Writer) -> int:
        with self._lock:
            self._unflushed.append(text)
        if text.endswith("\n"):
            self._hand_over(writer)
        return len(text)

    def _hand_over(self, writer: Writer) -> None:
        with self._lock:
            texts, self._unflushed = self._unflushed, []
        if texts:
            self._put("".join(texts), writer, droppable=self.DROPPABLE)

    def _put(self, text: str, writer: Writer, *, droppable: bool) -> None:
        writer.put(text.encode(self._stream.encoding, self._stream.errors), self, droppable=droppable)

    @abstractmethod
    def dropped(self, num_lines: int) -> bytes:
        """Returns the line that tells how many were dropped."""

    @abstractmethod
    def failed(self, error: OSError) -> None:
        """Hears, on the writer's thread, why a line could not be written."""


class Output(_Stream):
    """Standard output. Raises OutputError when it cannot be written to, BrokenPipeError when its reader is gone.

    With a writer, whoever writes next hears of it, and what `on_failure` sets is called once, on whatever thread.
    """

    DROPPABLE = False

    def __init__(self, stream: Any, writer: Writer | None = None) -> None:
        super().__init__(stream, writer)
        self._on_failure: Callable[[], None] | None = None
        self._error: OSError | None = None

    def write(self, text: str) -> int:
        if self.writer is not None:
            self.check()
            return self._take(text, self.writer)
        try:
            return int(self._stream.write(text))
        except OSError as error:
            raise _cannot_be_written(error) from None

    def flush(self) -> None:
        if self.writer is not None:
            self._hand_over(self.writer)
            return
        try:
            self._stream.flush()
        except OSError as error:
            raise _cannot_be_written(error) from None

    def offer(self, line: str) -> None:
        """Prints a line that a daemon drops where too much waits."""
        if self.writer is None:
            print(line, file=self, flush=True)
            return
        self.flush()
        self.check()
        self._put(f"{line}\n", self.writer, droppable=True)

    def check(self) -> None:
        """Raises what went wrong in the writer."""
        if self._error is not None:
            raise _cannot_be_written(self._error) from None

    def forgive(self) -> None:
        """Forgets what went wrong, once it is told."""
        self._error = None

    def dropped(self, num_lines: int) -> bytes:
        return json.dumps({"event": "dropped", "num_lines": num_lines}, separators=(",", ":")).encode() + b"\n"

    def failed(self, error: OSError) -> None:
        self._error = error
        self._tell()

    def on_failure(self, call: Callable[[], None] | None) -> None:
        self._on_failure = call
        if self._error is not None:
            self._tell()

    def _tell(self) -> None:
        """Calls what `on_failure` set, once, however many lines fail; either thread may set or take it meanwhile."""
        with self._lock:
            call, self._on_failure = self._on_failure, None
        if call is not None:
            call()


class Log(_Stream):
    """Standard error. A line that cannot be written is lost; later lines are tried again."""

    DROPPABLE = True

    def __init__(self, stream: Any, name: str = "", writer: Writer | None = None) -> None:
        """name: of the command, which is to begin each line of its own."""
        super().__init__(stream, writer)
        self._name = name

    def write(self, text: str) -> int:
        if self.writer is not None:
            return self._take(text, self.writer)
        with suppress(OSError, ValueError):  # ValueError: the stream was closed in Python
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self.writer is not None:
            self._hand_over(self.writer)
            return
        with suppress(OSError, ValueError):
            self._stream.flush()

    def dropped(self, num_lines: int) -> bytes:
        return f"{self._name}: nobody read standard error for a while; lines dropped: {num_lines}\n".encode()

    def failed(self, error: OSError) -> None:
        """Loses the line."""


def _cannot_be_written(error: OSError) -> OSError | OutputError:
    if isinstance(error, BrokenPipeError):
        return error
    why = error.strerror or type(error).__name__
    return OutputError(f"standard output cannot be written to ({why}); what was to be printed is lost")
