"""The verify node's own engine alone: without a network, scheduler or drafts, as a library would be used."""

from collections.abc import Sequence
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings


class OwnEngine:
    def __init__(self, settings: Settings) -> None:
        import goodspeed
        from goodspeed.engine import engines

        self.version = goodspeed.__version__
        checkpoint = engines.load(settings.model, num_threads=settings.num_threads)
        self._engine = engines.start(checkpoint)

    def write(self, request: Request) -> list[list[int]]:
        from goodspeed.engine.paged.chunks import Chunk

        texts: list[list[int]] = [[] for _ in request.prompts]
        alive = list(range(len(texts)))
        while alive:
            new = [texts[number][-1:] or request.prompts[number] for number in alive]
            logits = self._engine.forward([Chunk(number, some, 1) for number, some in zip(alive, new, strict=True)])
            for number, token in zip(list(alive), self._draw(logits, alive, texts, request), strict=True):
                texts[number].append(token)
                if token in request.end_ids or len(texts[number]) >= request.max_tokens:
                    self._engine.pool.free(number)
                    alive.remove(number)
        return texts

    def _draw(self, logits: Any, alive: Sequence[int], texts: list[list[int]], request: Request) -> list[int]:
        """Draws as the match rule does."""
        import torch

        from goodspeed.exact.sampling import SamplingBatch, choose
        from goodspeed.wire.messages import Sampling

        sampling = [Sampling(temperature=request.temperature, seed=request.seeds[number]) for number in alive]
        positions = [len(request.prompts[number]) + len(texts[number]) for number in alive]
        drawn: list[int] = choose(logits, SamplingBatch.of(sampling), torch.tensor(positions)).tolist()
        return drawn


load = OwnEngine
