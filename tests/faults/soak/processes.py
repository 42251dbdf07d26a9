"""The nodes of a soak as processes: what they tell is handed on and not kept, for a run of an hour tells much."""

import json
import subprocess
import threading

from tests.nodes import Event, Process, run

KEPT_EVENTS = ("ready", "connected", "stopped")
KEPT_LINES = 200
CHATTY = '{"event":"round"'  # the verify node's, many a second


class SoakedNode(Process):
    """A node of either kind. `generation` counts its lives."""

    def __init__(self, name: str, module: str, *words: str, ports: dict[str, str]) -> None:
        self.name = name
        self.generation = 0
        self.tracebacks: list[str] = []
        super().__init__(module, *words, ports=ports)

    def start_again(self) -> None:
        """Starts the node on the same ports, after a kill."""
        self.generation += 1
        self.process = self._start()

    def ready_again(self) -> None:
        """Returns when its present life is ready."""
        self.until(lambda: sum(one["event"] == "ready" for one in self.events) > self.generation, "ready")

    def _start(self) -> "subprocess.Popen[str]":
        """Starts the process as the harness does, without a standard input."""
        self._was_ended = False
        process = run(self.module, *self.words, "--json", stdin=subprocess.DEVNULL, start_new_session=True)
        self._threads = [
            threading.Thread(target=self._read, args=(source, take), daemon=True)
            for source, take in ((process.stdout, self._take_event), (process.stderr, self._take_line))
        ]
        for thread in self._threads:
            thread.start()
        return process

    def _take_event(self, line: str) -> None:
        if line.startswith(CHATTY):
            return
        told: Event = json.loads(line)
        if told.get("event") in KEPT_EVENTS:
            super()._take_event(line)

    def _take_line(self, line: str) -> None:
        super()._take_line(line)
        del self.log[:-KEPT_LINES]
        if "Traceback" in line:
            self.tracebacks.append(line.strip()[:2000])
