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

import openai
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@dataclass
class Node:
    """A daemon and the events that it has told."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def wait_for(self, event: str) -> dict:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if json.loads(line)["event"] == event:
                return json.loads(line)
        raise AssertionError(f"it ended without {event!r}: {self.lines}")

    def read_on(self) -> None:
        """Else the pipe fills up."""
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout or ()))
        self._reader.start()

    def end(self) -> dict:
        """Its last event, after it was told to stop."""
        assert self.process.wait(timeout=60) == 0
        if self._reader is not None:
            self._reader.join()
        else:
            self.lines.extend(self.process.stdout or ())
        return json.loads(self.lines[-1])


@contextmanager
def running(module: str, *options: str) -> Iterator[Node]:
    command = [sys.executable, "-m", module, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT) as process:
        try:
            yield Node(process)
        except BaseException:
            process.kill()
            raise
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


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
    assert node.end()["event"] == "stopped"


@pytest.fixture(scope="session")
def url(endpoint: str) -> Iterator[str]:
    with draft_node(endpoint) as (node, url):
        yield url
    assert node.end()["all_finished"]


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client
