"""A real server of llama.cpp: the program `llama-server` where it is on the PATH, else xllamacpp's in this process."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import xllamacpp

PROGRAM = "llama-server"
DEADLINE_S = 300.0


@contextmanager
def serving(file: str | Path, num_slots: int = 1, num_tokens: int = 512) -> Iterator[str]:
    """Yields the URL of a server with one thread. num_tokens: of keys and values, in each slot."""
    if (program := shutil.which(PROGRAM)) is not None:
        with _by_program(program, str(file), num_slots, num_tokens) as url:
            yield url
        return
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx, params.warmup, params.verbosity = num_slots, num_slots * num_tokens, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_threads_http = num_slots + 2  # a connection occupies one
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    yield str(server.listening_address)
    del server  # waits for its threads


def ask(url: str, path: str, **body: Any) -> Any:
    """Returns a server's answer."""
    with urlopen(Request(f"{url}/{path}", json.dumps(body).encode()), timeout=60) as answer:
        return json.load(answer)


@contextmanager
def _by_program(program: str, file: str, num_slots: int, num_tokens: int) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--model", file, "--host", "127.0.0.1", "--port", str(port), "--threads", "1", "--no-warmup"]
    words += ["--parallel", str(num_slots), "--ctx-size", str(num_slots * num_tokens), "--threads-http", "8"]
    process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(process, url)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait_for(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Waits until the server has loaded its model."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urlopen(f"{url}/health", timeout=10.0):
                return
        except (URLError, ConnectionError):  # it does not listen yet, or answers 503
            assert process.poll() is None, f"{PROGRAM} ended with status {process.returncode}"
            assert time.monotonic() < deadline, f"{PROGRAM} does not answer at {url}"
            time.sleep(0.1)
