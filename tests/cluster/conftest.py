"""The one verify node that runs as a process of its own, for all tests that need real processes."""

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
    command = [sys.executable, "-m", "verify_node", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
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
