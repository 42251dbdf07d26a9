"""llama.cpp's server as a program, `llama-server`, asked over HTTP on loopback."""

import http.client
import os
import re
import socket
import subprocess
import time
from pathlib import Path

from experiments.benchmarks.rivals.asking import HOST
from experiments.benchmarks.rivals.llama import NUM_DRAFTED, Server
from experiments.benchmarks.rivals.worker import Settings

START_S = 120.0


class Program(Server):
    """`llama-server`; it ends with this process."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.num_at_once)
        program = str(settings.program)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(program).parent)}  # its libraries may lie beside it
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, env=environment)
        found = re.search(r"version: (.+)", told.stdout + told.stderr)
        self.version = found[1] if found else "of unknown version"
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        words = [program, "--model", settings.model, "--host", HOST, "--port", str(self.port), "--no-ui"]
        words += ["--parallel", str(settings.num_at_once), "--ctx-size", str(settings.num_at_once * settings.context)]
        words += ["--threads", str(settings.num_threads), "--threads-batch", str(settings.num_threads), "--no-warmup"]
        words += ["--cache-ram", "0"]
        if settings.drafts == "model":
            words += ["--model-draft", str(settings.draft_model), "--spec-type", "draft-simple"]
            words += ["--spec-draft-n-max", str(NUM_DRAFTED), "--threads-draft", str(settings.num_threads)]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(f"llama-server ended with status {self._process.returncode}")
            try:
                self.ask({"prompt": [1], "n_predict": 1})
                return
            except (OSError, RuntimeError, http.client.HTTPException):  # 503 while it loads
                time.sleep(0.2)
        raise RuntimeError(f"llama-server was not ready within {START_S:g} s")


load = Program
