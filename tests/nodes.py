"""Both daemons as real processes, with their events and log lines, and signals for them.

    with VerifyNode("--budget", "8") as verify, DraftNode(verify.endpoint) as draft:
        draft.wait_until_ready()
        verify.kill()
        verify.restart()  # on the same port

Options are words of the command line; the last one of a name counts, so a default here can be overridden. Nothing that
was started survives its `with`, whatever happened inside.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from httpx2 import Client, ConnectError
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as MetricSample

from experiments.harness.forks import Fork
from goodspeed.engine.model_files.names import NO_MODEL, is_url

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
DEADLINE_S = 600.0
"""Longest wait: a busy machine takes long to start a process, and only a broken node lets a test wait so long."""

POLL_S = 0.1  # between two looks at what a node says over HTTP
ANYWHERE = "127.0.0.1:0"
Event = dict[str, Any]
Node = TypeVar("Node", bound="Process")
Found = TypeVar("Found")


def run(module: str, *words: str, **pipes: Any) -> "subprocess.Popen[str]":
    """Starts a command in an interpreter of its own, with pipes for what it says."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    return subprocess.Popen([sys.executable, "-m", module, *words], cwd=ROOT, env=ENVIRONMENT, text=True, **pipes)


class Line(NamedTuple):
    """A log line; `at` is the `time.time` at which the node wrote it."""

    at: float
    text: str


class Process:
    """A node's process, started by the constructor, ended by its `with`. `events` and `log` go on over restarts.

    A fork (`experiments/harness/forks.py`), unless it is to have no model, or a server's, and so no torch. Each
    event has one field more: `heard_at`, of `time.monotonic`.
    """

    def __init__(self, module: str, *words: str, ports: dict[str, str]) -> None:
        """ports: options that name an address, and the field of the `ready` event with the actual one."""
        self.module = module
        self.words = list(words)
        self.events: list[Event] = []
        self.log: list[Line] = []  # what it says on standard error
        self._ports = ports
        self._told = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._was_ended = False  # by a test
        self._client = Client(timeout=DEADLINE_S)
        self.process = self._start()

    def __enter__(self: Node) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._was_ended:
                assert self.is_running, f"{self} ended by itself"
                self.go_on()
                status = self.terminate()
                assert status == 0, f"{self} ended with status {status}"
        finally:
            self.kill()
            self._client.close()

    def __str__(self) -> str:
        told = [*(str(event)[:300] for event in self.events[-5:]), *(line.text for line in self.log[-15:])]
        return "\n  ".join([f"{self.module} {' '.join(self.words)} (pid {self.process.pid}):", *told])

    # -- its life --------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL; all earlier output has been read when this returns."""
        self.process.kill()
        self.end()

    def terminate(self) -> int:
        """Sends SIGTERM; returns the exit status when the process has ended."""
        self.process.terminate()
        return self.end()

    def end(self) -> int:
        """Waits until the process ends and its output is read; returns its exit status."""
        self._was_ended = True
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join(DEADLINE_S)

    def stop(self) -> None:
        """Sends SIGSTOP: the process stops until `go_on`; its sockets stay."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Sends SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kills the process where it still runs, and starts it on the same ports; returns before it is ready."""
        self.wait_for("ready")
        self.kill()
        self.process = self._start()

    def _start(self) -> "Fork | subprocess.Popen[str]":
        self._was_ended = False
        words = [*self.words, "--json"]
        has_torch = not any(word == NO_MODEL or is_url(word) for word in words)
        process = Fork(self.module, *words) if has_torch else run(self.module, *words)
        for pipe, take in ((process.stdout, self._take_event), (process.stderr, self._take_line)):
            thread = threading.Thread(target=self._read, args=(pipe, take), daemon=True)
            thread.start()
            self._threads.append(thread)
        return process

    # -- what it tells ---------------------------------------------------------------------------------------------

    @property
    def num_events(self) -> int:
        """Number of events so far, for the `after` of a later wait."""
        return len(self.events)

    def wait_for(self, event: str, *, after: int = 0, timeout_s: float = DEADLINE_S, **fields: object) -> Event:
        """Waits for the first event with this name and these fields whose number is `after` or later."""

        def found() -> Event | None:
            for told in self.events[after:]:
                if told["event"] == event and all(told.get(name) == value for name, value in fields.items()):
                    return told
            return None

        return self.until(found, f"{event} {fields or ''}", timeout_s)

    def wait_for_line(self, text: str, *, after: int = 0, timeout_s: float = DEADLINE_S) -> "Line":
        """Waits for the first log line with this text whose number is `after` or later."""
        return self.until(
            lambda: next((line for line in self.log[after:] if text in line.text), None), repr(text), timeout_s
        )

    def until(self, found: Callable[[], Found | None], what: str, timeout_s: float = DEADLINE_S) -> Found:
        """Waits until `found` returns something true, and returns it; AssertionError when the node ends first."""
        deadline = time.monotonic() + timeout_s
        with self._told:
            while not (value := found()):
                has_ended = not any(thread.is_alive() for thread in self._threads)
                assert not has_ended, f"{what} did not come from {self}, which has ended"
                assert time.monotonic() < deadline, f"{what} did not come from {self}"
                self._told.wait(0.2)
            return value

    def _read(self, pipe: TextIO, take: Callable[[str], None]) -> None:
        with pipe:
            for line in pipe:
                with self._told:
                    take(line)
                    self._told.notify_all()

    def _take_event(self, line: str) -> None:
        told: Event = json.loads(line)
        if told.get("event") == "ready":
            self._keep_ports(told)
        self.events.append({**told, "heard_at": time.monotonic()})

    def _keep_ports(self, ready: Event) -> None:
        for option, name in self._ports.items():
            if ready.get(name):
                self.words += [option, str(ready[name]).removeprefix("http://")]

    def _take_line(self, line: str) -> None:
        written = re.search(r" time=(\d\S+)(?= |$)", line)
        at = datetime.fromisoformat(written[1]).timestamp() if written else time.time()
        self.log.append(Line(at, line.rstrip("\n")))

    # -- its HTTP face ---------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of `--http`; waits until the node is ready."""
        return str(self.wait_for("ready")["url"])

    def metrics(self) -> dict[str, float]:
        """Returns the samples of `/metrics` by `name` or `name{label="value"}`, without `goodspeed_`."""
        text = self._client.get(f"{self.url}/metrics").raise_for_status().text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return {_full_name(sample): sample.value for sample in samples}

    def wait_for_metric(
        self, name: str, holds: Callable[[float], bool], *, timeout_s: float = DEADLINE_S
    ) -> dict[str, float]:
        """Waits until `holds` is true of this metric (0 when absent); returns all metrics."""
        deadline = time.monotonic() + timeout_s
        while not holds((metrics := self.metrics()).get(name, 0.0)):
            assert time.monotonic() < deadline, f"{name} is {metrics.get(name)} at {self}"
            time.sleep(POLL_S)
        return metrics


def _full_name(sample: MetricSample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return sample.name.removeprefix("goodspeed_") + (f"{{{labels}}}" if labels else "")


def with_settings(**settings: float) -> tuple[str, ...]:
    """Returns the verify node's module, and the words before its options; settings: as of `with_settings.py`."""
    return ("tests.verify_node.with_settings", json.dumps(settings)) if settings else ("verify_node",)


class VerifyNode(Process):
    """A verify node that lets slow machines draft, with `/metrics`."""

    def __init__(self, *words: str, measures: bool = False, **settings: float) -> None:
        """measures: it finds out how long rounds take and whether drafts pay; else drafted tokens take no time.

        settings: fields of `VerifyConfig` that have no option.
        """
        if not measures and not {"--model", "--tp"} & {*words}:
            settings["round_s"] = 0.002
        module = with_settings(**settings)
        defaults = ("--model", "tiny-target", "--bind", f"tcp://{ANYWHERE}", "--http", ANYWHERE)
        log = ("--log-level", "info")
        super().__init__(*module, *defaults, *log, *words, ports={"--bind": "endpoint", "--http": "url"})

    @property
    def endpoint(self) -> str:
        """The address for draft nodes; waits until the node is ready."""
        return str(self.wait_for("ready")["endpoint"])


class DraftNode(Process):
    """A draft node with the HTTP API."""

    def __init__(self, verify: str, *words: str, module: tuple[str, ...] = ("draft_node",)) -> None:
        """verify: the endpoint of the verify node or of a proxy. module: a stand-in's module, and its own options."""
        defaults = (*module[1:], "--model", "tiny-draft-s", "--verify", verify)
        face = ("--http", ANYWHERE, "--log-level", "info")
        super().__init__(module[0], *defaults, *face, *words, ports={"--http": "url"})

    def wait_until_ready(self, *, is_ready: bool = True) -> None:
        """Waits until `/ready` answers that the node accepts texts (or that it does not)."""
        deadline = time.monotonic() + DEADLINE_S
        while self._is_ready() != is_ready:
            assert self.is_running, f"{self} ended"
            assert time.monotonic() < deadline, f"/ready does not become {is_ready} at {self}"
            time.sleep(POLL_S)

    def _is_ready(self) -> bool:
        try:
            return bool(self._client.get(f"{self.url}/ready").status_code == 200)
        except ConnectError:  # it is about to start
            return False
