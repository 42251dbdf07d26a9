"""A verify node and a draft node with an HTTP face, as processes of their own, for all tests here."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@dataclass
class Node:
    """A daemon and the events that it has told."""

    process: "subprocess.Popen[str]"
    events: list[dict[str, Any]] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def wait_for(self, event: str) -> dict[str, Any]:
        for told in self._read():
            if told["event"] == event:
                return told
        raise AssertionError(f"it ended without {event!r}: {self.events}")

    def read_on(self) -> None:
        """Else the pipe fills up."""
        self._reader = threading.Thread(target=lambda: list(self._read()))
        self._reader.start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        """Its exit status; what it told last is the last event."""
        if self._reader is not None:
            self._reader.join()
        list(self._read())
        return self.process.wait(timeout=60)

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self.process.stdout or ():
            self.events.append(json.loads(line))
            yield self.events[-1]


@contextmanager
def running(module: str, *options: str) -> Iterator[Node]:
    command = [sys.executable, "-m", module, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT) as process:
        node = Node(process)
        try:
            yield node
        except BaseException:
            process.kill()
            raise
        if process.poll() is None:
            assert node.stop() == 0
        assert node.events[-1]["event"] == "stopped"


@contextmanager
def draft_node(endpoint: str, *options: str) -> Iterator[tuple[Node, str]]:
    """With the base URL of its OpenAI API."""
    words = ["--model", "tiny-draft-s", "--verify", endpoint, "--http", "127.0.0.1:0", *options]
    with running("draft_node", *words) as node:
        url = node.wait_for("ready")["url"]
        node.wait_for("connected")
        yield node, f"{url}/v1"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Of a verify node that has drafts made however fast this machine is."""
    with running("verify_node", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--cost", "none") as node:
        endpoint = node.wait_for("ready")["endpoint"]
        node.read_on()
        yield endpoint


@pytest.fixture(scope="session")
def url(endpoint: str) -> Iterator[str]:
    with draft_node(endpoint) as (_, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client
