"""The one verify node that runs as a process of its own, for all tests that need real processes.

It has drafts made however fast this machine is (`--cost none`), and waits long for peers that send no heartbeats.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class ProcessCluster:
    """A verify node as a process of its own."""

    process: subprocess.Popen[str]
    endpoint: str


@pytest.fixture(scope="session")
def process_cluster() -> Iterator[ProcessCluster]:
    """One `goodspeed-verify` for all tests that need real processes."""
    words = ["--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--cost", "none", "--lease-s", "60", "--json"]
    command = [sys.executable, "-m", "verify_node", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))  # else the pipe fills up
        reader.start()
        yield ProcessCluster(process, ready["endpoint"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        reader.join()
        assert json.loads(lines[-1])["event"] == "stopped"
