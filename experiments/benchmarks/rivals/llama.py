"""llama.cpp's server in this process (`xllamacpp`, a wheel that needs no compiler), asked over HTTP on loopback."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings

HOST = "127.0.0.1"

NUM_DRAFTED = 8
"""Longest draft of a draft model."""

SAMPLING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "samplers": ["temperature"]}


def post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request; RuntimeError unless it is one with status 200."""
    connection = http.client.HTTPConnection(HOST, port)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {text[:500].decode(errors='replace')}")
    found: dict[str, Any] = json.loads(text)
    return found


class Llama:
    def __init__(self, settings: Settings) -> None:
        from importlib.metadata import version

        import xllamacpp

        self.version = version("xllamacpp")
        self._threads = ThreadPoolExecutor(settings.num_at_once)
        params = xllamacpp.CommonParams()
        params.model.path = settings.model
        params.hostnames, params.port = [HOST], 0
        params.n_parallel, params.n_ctx = settings.num_at_once, settings.num_at_once * settings.context
        params.n_threads_http = settings.num_at_once + 2  # a connection occupies one
        params.cache_ram_mib, params.warmup, params.verbosity = 0, False, -1
        draft = params.speculative.draft
        for cpu in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
            cpu.n_threads = settings.num_threads
        if settings.drafts == "model":
            params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            draft.mparams.path, draft.n_max = str(settings.draft_model), NUM_DRAFTED
        self._running = xllamacpp.Server(params)
        self._port = int(self._running.listening_address.rpartition(":")[2])

    def write(self, request: Request) -> list[list[int]]:
        same = {"n_predict": request.max_tokens, "temperature": request.temperature, **SAMPLING}
        same |= {"return_tokens": True, "cache_prompt": False}  # every repetition has the same prompts
        texts = zip(request.prompts, request.seeds, strict=True)
        bodies = [{"prompt": prompt, "seed": seed, **same} for prompt, seed in texts]
        return [answer["tokens"] for answer in self._threads.map(self._ask, bodies)]

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        return post(self._port, "/completion", body)


load = Llama
