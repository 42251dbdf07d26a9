"""Runs of real nodes: each begins with a verify node that knows nothing yet; draft nodes go on from run to run.

The verify node has the last core to itself, and all draft nodes share the others, as if they were elsewhere.
"""

import json
import operator
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from experiments.benchmarks.nodes.processes import free_port
from experiments.benchmarks.nodes.workers import DraftWorker, Wanted, fork
from experiments.served.recorded import Run, collect
from goodspeed.engine.model_files.names import NO_MODEL

SILENCE_S = 300.0
"""The longest time between two events of a verify node, its start included."""

END_S = 10.0

ELSEWHERE = {"verify_node.config.is_loopback": operator.not_}
"""No endpoint is: so the verify node takes its draft nodes, which have cores of their own, for those of other machines,
and never tries whether it would be faster without their models."""


class NodeEnded(RuntimeError):
    """A node has ended, or is silent; what it said is on standard error."""


class Verify:
    """A verify node's process. A thread reads its events as they come, for those that nobody reads are dropped."""

    def __init__(self, words: Sequence[str], core: int | None) -> None:
        options = ["--json", "--record", "--log-level=error"]
        self.process = fork(["verify_node", *words, *options], core, ELSEWHERE)
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        try:
            for line in self.process.stdout or ():
                self._events.put(json.loads(line))
        except ValueError:  # the node was killed within a line
            pass
        finally:
            self._events.put(None)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields events, for ever. Raises NodeEnded."""
        while True:
            try:
                event = self._events.get(timeout=SILENCE_S)
            except queue.Empty:
                raise NodeEnded(f"the verify node said nothing for {SILENCE_S:g} s; has a draft node ended?") from None
            if event is None:
                raise NodeEnded("the verify node ended; what it said is above")
            yield event

    def stop(self) -> None:
        """Ends the process, by force where it takes long."""
        self.process.terminate()
        self._reading.join(END_S)
        self.process.__exit__()


@dataclass
class Nodes:
    """The draft nodes, and how the verify node of a run is started."""

    target: str
    endpoint: str
    verify_options: Sequence[str]
    core: int | None  # of the verify node
    loads: Sequence[int] = ()  # texts of each client at once; none: one
    workers: list[DraftWorker] = field(default_factory=list)
    _are_known: bool = False  # whether they have been connected

    def run(self, policy: str, wanted: Sequence[Sequence[Wanted]], num_rounds: int) -> Run:
        """Serves the clients' lists until so many rounds have been recorded in which all of them took part."""
        own = [f"--model={self.target}", f"--bind={self.endpoint}", f"--policy={policy}", "--threads=1"]
        verify = Verify([*own, *self.verify_options], self.core)
        try:
            events = verify.events()
            next(event for event in events if event["event"] == "ready")
            self._wait_until_connected(verify)
            for worker, texts, load in zip(self.workers, wanted, self.loads or [1] * len(wanted), strict=True):
                worker.ask(texts, load)
            run = collect(events, [worker.name for worker in self.workers], num_rounds)
            self._serve_nothing()
        finally:
            verify.stop()
        return run

    def _wait_until_connected(self, verify: Verify) -> None:
        if self._are_known:
            self._serve_nothing()
            return
        for worker in self.workers:
            worker.wait_until_connected(verify.process)
        self._are_known = True

    def _serve_nothing(self) -> None:
        """Ends what is being served, and waits until all have a verify node."""
        for worker in self.workers:
            worker.ask([])
        for worker in self.workers:
            worker.answer()


@dataclass(frozen=True)
class Kind:
    """A kind of rounds, and whom they serve."""

    verify_options: Sequence[str]
    draft_options: Sequence[str] = ()  # of draft nodes with a model
    slower: Sequence[float] = ()  # times its own time that each draft model takes; none: once
    loads: Sequence[int] = ()  # texts of each client at once; none: one


@contextmanager
def nodes(target: str, drafts: Sequence[str], names: Sequence[str], kind: Kind) -> Iterator[Nodes]:
    """Yields a draft node of each name, which has no history; ends all processes at the end. drafts: models in turn."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for the process that is forked
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    of_verify, of_drafts = (cores[-1], cores[:-1]) if len(cores) > 1 else (None, [])
    found = Nodes(target, f"tcp://127.0.0.1:{free_port()}", kind.verify_options, of_verify, kind.loads)
    try:
        for number, (name, factor) in enumerate(zip(names, kind.slower or [1] * len(names), strict=True)):
            core = of_drafts[number % len(of_drafts)] if of_drafts else None
            draft = drafts[number % len(drafts)]
            options = ["--history=off", *(kind.draft_options if draft != NO_MODEL else ())]
            words = ["experiments.served.slower", str(factor)] if factor != 1 else []
            found.workers.append(
                DraftWorker(name, found.endpoint, draft, options, core, words, target=target, launch=fork)
            )
        yield found
    finally:
        for worker in found.workers:
            worker.stop()
