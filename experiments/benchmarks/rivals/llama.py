"""llama.cpp's server in this process (`xllamacpp`), asked over HTTP on loopback."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from experiments.benchmarks.rivals.asking import HOST, post
from experiments.benchmarks.rivals.worker import Request, Settings

NUM_DRAFTED = 8
"""Longest draft of a draft model."""


class Server:
    """Asks a running server; those that start one are below, and in `llama_server`."""

    version: str
    port: int

    def __init__(self, num_at_once: int) -> None:
        self._threads = ThreadPoolExecutor(num_at_once)

    def write(self, request: Request) -> list[list[int]]:
        bodies = [
            {
                "prompt": prompt,
                "n_predict": request.max_tokens,
                "temperature": request.temperature,
                "seed": seed,
                "top_k": 0,
                "top_p": 1.0,
                "min_p": 0.0,
                "samplers": ["temperature"],
                "return_tokens": True,
                "cache_prompt": False,  # every repetition has the same prompts
            }
            for prompt, seed in zip(request.prompts, request.seeds, strict=True)
        ]
        return [answer["tokens"] for answer in self._threads.map(self.ask, bodies)]

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        return post(self.port, "/completion", body)


class InProcess(Server):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.num_at_once)
        from importlib.metadata import version

        import xllamacpp

        self.version = version("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = settings.model
        params.hostnames, params.port = [HOST], 0
        params.n_parallel, params.n_ctx = settings.num_at_once, settings.num_at_once * settings.context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.num_threads
        params.n_threads_http = settings.num_at_once + 2  # a connection occupies one
        params.cache_ram_mib, params.warmup, params.verbosity = 0, False, -1
        if settings.drafts == "model":
            params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            params.speculative.draft.mparams.path = str(settings.draft_model)
            params.speculative.draft.n_max = NUM_DRAFTED
            for cpu in (params.speculative.draft.cpuparams, params.speculative.draft.cpuparams_batch):
                cpu.n_threads = settings.num_threads
        self._running = xllamacpp.Server(params)
        self.port = int(self._running.listening_address.rpartition(":")[2])


load = InProcess
