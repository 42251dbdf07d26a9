"""The verify node's own engine alone: without a network, scheduler or drafts, as a library would be used."""

from collections.abc import Sequence
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings, without_end


class OwnEngine:
    def __init__(self, settings: Settings) -> None:
        import torch

        import goodspeed
        from goodspeed.serving.config import from_namespace
        from verify_node.assembly import load_runners
        from verify_node.cli import build_parser
        from verify_node.config import VerifyConfig

        torch.set_num_threads(settings.num_threads)
        words = [f"--model={settings.model}", f"--threads={settings.num_threads}"]
        self.version = goodspeed.__version__
        self._runner, _ = load_runners(from_namespace(VerifyConfig, build_parser().parse_args(words)), None)

    def write(self, request: Request) -> list[list[int]]:
        from goodspeed.engine.runner import Chunk

        texts: list[list[int]] = [[] for _ in request.prompts]
        alive = list(range(len(texts)))
        new = {number: list(prompt) for number, prompt in enumerate(request.prompts)}  # not in the KV cache yet
        while alive:
            logits = self._runner.forward([Chunk(number, new[number], 1) for number in alive])
            drawn = self._draw(logits, alive, request, [len(texts[number]) for number in alive])
            for number, token in zip(alive, drawn, strict=True):
                texts[number].append(token)
                new[number] = [token]
            ended = [number for number in alive if self._is_over(texts[number], request)]
            for number in ended:
                self._runner.free(number)
            alive = [number for number in alive if number not in ended]
        return texts

    def _draw(self, logits: Any, alive: Sequence[int], request: Request, written: Sequence[int]) -> list[int]:
        """Draws as the match rule does."""
        import torch

        from goodspeed.exact.sampling import SamplingBatch, choose
        from goodspeed.wire.messages import Sampling

        sampling = [Sampling(temperature=request.temperature, seed=request.seeds[number]) for number in alive]
        positions = [len(request.prompts[number]) + more for number, more in zip(alive, written, strict=True)]
        drawn: list[int] = choose(logits, SamplingBatch.of(sampling), torch.tensor(positions)).tolist()
        return drawn

    @staticmethod
    def _is_over(text: list[int], request: Request) -> bool:
        return len(text) >= request.max_tokens or len(without_end(text[-1:], request.end_ids)) == 0


load = OwnEngine
