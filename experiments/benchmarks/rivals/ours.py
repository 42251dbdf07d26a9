"""GoodSpeed itself as its users run it: a verify node and draft nodes, each a process, asked over HTTP on loopback."""

import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import repeat
from urllib.parse import urlsplit

from experiments.benchmarks.nodes.processes import http_nodes
from experiments.benchmarks.rivals.files import Files
from experiments.benchmarks.rivals.llama import post
from experiments.benchmarks.rivals.running import Written
from experiments.benchmarks.rivals.worker import Request, without_end
from goodspeed.app.demo.options import draft_words
from goodspeed.engine.model_files.names import NO_MODEL

PLAIN, NGRAM, DRAFT = "goodspeed", "goodspeed_ngram", "goodspeed_draft"
WAYS = (PLAIN, NGRAM, DRAFT)


class Ours:
    """One way of asking some draft nodes; each text at once has a node, and so a user, of its own.

    drafter: of all requests; None: the nodes' own choice."""

    def __init__(self, ports: Sequence[int], *, drafter: str | None) -> None:
        self._ports = ports
        self._own = {"drafter": drafter, "prefix_cache": False}  # every repetition has the same prompts

    def write(self, request: Request) -> Written:
        started = time.perf_counter()
        written: list[tuple[list[int], float]] = []
        with ThreadPoolExecutor(request.at_once) as threads:
            for group in request.groups():
                written += threads.map(self._text, self._ports, group.prompts, group.seeds, repeat(group))
        return Written([own for own, _ in written], time.perf_counter() - started, [own_s for _, own_s in written])

    def _text(self, port: int, prompt: Sequence[int], seed: int, request: Request) -> tuple[list[int], float]:
        started = time.perf_counter()
        body = {
            "prompt": prompt,
            "seed": seed,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "stop_token_ids": request.end_ids,
            "return_token_ids": True,
            "goodspeed": self._own,
        }
        [choice] = post(port, "/v1/completions", body)["choices"]
        return without_end(choice["token_ids"], request.end_ids), time.perf_counter() - started


@asynccontextmanager
async def ours(
    ways: Sequence[str], target: str, draft: Files, num_at_once: int, cores: list[int], cores_of_drafts: list[int]
) -> AsyncIterator[dict[str, Ours]]:
    """Yields our ways; their nodes keep no history. cores: of the verify node. cores_of_drafts: of all draft nodes."""
    num_plain = 0 if {*ways} == {DRAFT} else num_at_once
    with_model = num_at_once if DRAFT in ways else 0
    models = [draft_words(NO_MODEL, target)] * num_plain + [draft_words(draft.name or NO_MODEL, target)] * with_model
    options = [[f"--name=user-{number}", "--history=off", *model] for number, model in enumerate(models, 1)]
    async with http_nodes(options, f"--threads={len(cores)}", target=target, cores=(cores, cores_of_drafts)) as nodes:
        ports = [int(urlsplit(url).port or 0) for url in nodes.urls]
        of = {way: ports[num_plain:] if way == DRAFT else ports[:num_plain] for way in ways}
        yield {way: Ours(of[way], drafter="none" if way == PLAIN else None) for way in ways}
