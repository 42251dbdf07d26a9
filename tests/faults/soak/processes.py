"""The nodes of a soak as processes: what they tell is handed on and not kept, for a run of an hour tells much."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.nodes import Event, Process, run

KEPT_EVENTS = ("ready", "connected", "stopped")
KEPT_LINES = 200
CHATTY = '{"event":"round"'  # the verify node's, many a second


class SoakedNode(Process):
    """A node of either kind. `generation` counts its lives; a thread calls `on_event` with all that is not kept."""

    def __init__(
        self,
        name: str,
        module: str,
        *words: str,
        ports: dict[str, str],
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.name = name
        self.generation = 0
        self.started_at = time.monotonic()
        self.tracebacks: list[str] = []
        self._on_event = on_event
        super().__init__(module, *words, ports=ports)

    def start_again(self) -> None:
        """Starts the node on the same ports, after a kill."""
        self.generation += 1
        self.started_at = time.monotonic()
        self.process = self._start()

    def ready_again(self) -> None:
        """Returns when its present life is ready."""
        self.until(lambda: sum(one["event"] == "ready" for one in self.events) > self.generation, "ready")

    def write(self, line: str) -> None:
        """A line on its standard input; what is dead does not read it."""
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(BrokenPipeError, ValueError):  # killed meanwhile: its texts are over
                stdin.write(line + "\n")
                stdin.flush()

    def _start(self) -> "subprocess.Popen[str]":
        """Starts the process as the harness does, with a standard input of its own."""
        self._was_ended = False
        process = run(self.module, *self.words, "--json", stdin=subprocess.PIPE, start_new_session=True)
        self._threads = [
            threading.Thread(target=self._read, args=(source, take), daemon=True)
            for source, take in ((process.stdout, self._take_event), (process.stderr, self._take_line))
        ]
        for thread in self._threads:
            thread.start()
        return process

    def end(self) -> int:
        try:
            return super().end()
        finally:
            if self.process.stdin is not None:
                with suppress(BrokenPipeError):
                    self.process.stdin.close()

    def _take_event(self, line: str) -> None:
        if line.startswith(CHATTY):
            return
        told: Event = json.loads(line)
        if told.get("event") in KEPT_EVENTS:
            super()._take_event(line)
        elif self._on_event is not None and "event" in told:
            self._on_event(told)

    def _take_line(self, line: str) -> None:
        super()._take_line(line)
        del self.log[:-KEPT_LINES]
        if "Traceback" in line:
            self.tracebacks.append(line.strip()[:2000])
