"""Tokens per second of GoodSpeed beside what users would pick instead: the same models, prompts and machine, one run.

*plain*: the target's own `generate`, one stream. *assisted*: Hugging Face assisted generation, one stream (it takes no
batches, so eight users are eight streams in turn). *plain_8*: `generate` of a batch of eight. *goodspeed_1*,
*goodspeed_8*: one and eight draft nodes, each a process, served by one verify node; *goodspeed_8_no_speculation*: the
same with drafts of length 0. Every text has the same length (nothing ends early), one prompt of each of the eight
domains. With eight clients each asks for all domains in an order of its own, one after the other, so eight different
texts are always being written, as in a batch of plain_8. All ways take turns in every repetition; medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.benchmarks.nodes import DraftWorker, Wanted, cluster, serve_all
from goodspeed.engine import checkpoints
from goodspeed.engine.text import encode_prompt
from goodspeed.messages import MAX_DRAFT
from goodspeed.tiny import prompts

TARGET, DRAFTS = "tiny-target", ("tiny-draft-s", "tiny-draft-m")
NUM_CLIENTS = 8
WAYS = ("plain", "assisted", "plain_8", "goodspeed_1", "goodspeed_8", "goodspeed_8_no_speculation")


class Alone:
    """The target through `transformers` alone."""

    def __init__(self, num_tokens: int, texts: Sequence[list[int]]) -> None:
        self.model: Any = _for_generate(TARGET)
        self.assistant: Any = _for_generate(DRAFTS[0])
        self.num_tokens = num_tokens
        self.texts = texts

    def plain(self, temperature: float) -> list[list[int]]:
        return [self._generate(torch.tensor([text]), temperature)[0] for text in self.texts]

    def assisted(self, temperature: float) -> list[list[int]]:
        assistant = {"assistant_model": self.assistant}
        return [self._generate(torch.tensor([text]), temperature, **assistant)[0] for text in self.texts]

    def plain_8(self, temperature: float) -> list[list[int]]:
        longest = max(map(len, self.texts))
        ids = torch.tensor([[0] * (longest - len(text)) + text for text in self.texts])
        mask = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in self.texts])
        return self._generate(ids, temperature, attention_mask=mask)

    @torch.inference_mode()
    def _generate(self, ids: torch.Tensor, temperature: float, **options: Any) -> list[list[int]]:
        options.setdefault("attention_mask", torch.ones_like(ids))
        how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        out = self.model.generate(ids, max_new_tokens=self.num_tokens, pad_token_id=0, **how, **options)
        tokens: list[list[int]] = out[:, ids.shape[1] :].tolist()
        return tokens


def _for_generate(name: str) -> Any:
    """As `from_pretrained` gives it, but that nothing ends a text before its length."""
    checkpoint = checkpoints.load(name)
    checkpoint.model.generation_config.eos_token_id = None
    return checkpoint.model


class Served:
    """The same texts through GoodSpeed's processes."""

    def __init__(self, workers: list[DraftWorker], num_tokens: int, texts: Sequence[list[int]], rounds: int) -> None:
        self.workers = workers
        self.num_tokens = num_tokens
        self.texts = texts
        self.rounds = rounds
        self.drafted: dict[str, tuple[int, int]] = {}  # way: drafted, accepted

    def goodspeed_1(self, temperature: float) -> list[list[int]]:
        own = [self._wanted(number, temperature) for number in range(len(self.texts))]
        return self._serve("goodspeed_1", self.workers[:1], [own])

    def goodspeed_8(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_8", self.workers, self._everybody(temperature, MAX_DRAFT))

    def goodspeed_8_no_speculation(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_8_no_speculation", self.workers, self._everybody(temperature, 0))

    def _everybody(self, temperature: float, max_draft: int) -> list[list[Wanted]]:
        return [
            [self._wanted(client + turn, temperature, max_draft) for turn in range(self.rounds)]
            for client in range(len(self.workers))
        ]

    def _wanted(self, number: int, temperature: float, max_draft: int = MAX_DRAFT) -> Wanted:
        number %= len(self.texts)
        return Wanted(self.texts[number], self.num_tokens, temperature, number, max_draft)

    def _serve(self, way: str, workers: list[DraftWorker], wanted: list[list[Wanted]]) -> list[list[int]]:
        _, served = serve_all(workers, wanted)
        everything = [one for own in served for one in own]
        before = self.drafted.get(way, (0, 0))
        drafted, accepted = sum(one.num_drafted for one in everything), sum(one.num_accepted for one in everything)
        self.drafted[way] = before[0] + drafted, before[1] + accepted
        return [one.tokens for one in everything]


def measure(
    ways: dict[str, Callable[[float], list[list[int]]]], temperature: float, repetitions: int
) -> dict[str, list[float]]:
    """Tokens per second of every way in every repetition; the first, which warms up, is left out."""
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(repetitions + 1):
        for way, serve in ways.items():
            started = time.perf_counter()
            num_tokens = sum(map(len, serve(temperature)))
            rate = num_tokens / (time.perf_counter() - started)
            if repetition:
                rates[way].append(rate)
        print(f"T={temperature:g} repetition {repetition} of {repetitions}", file=sys.stderr)
    return rates


def compare(rates: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and the ratios that are wanted."""
    median = {way: statistics.median(values) for way, values in rates.items()}
    return median | {
        "ratio_1": median["goodspeed_1"] / max(median["plain"], median["assisted"]),
        "ratio_8": median["goodspeed_8"] / max(median["plain_8"], median["goodspeed_8_no_speculation"]),
        "ratio_8_sequential": median["goodspeed_8"] / median["assisted"],
    }


def run(options: argparse.Namespace, temperatures: Sequence[float]) -> list[dict[str, Any]]:
    tokenizer = checkpoints.load_tokenizer(TARGET)
    texts = [encode_prompt(tokenizer, prompt.prompt) for prompt in prompts.demo()]
    alone = Alone(options.tokens, texts)
    models = [DRAFTS[number % len(DRAFTS)] for number in range(NUM_CLIENTS)]
    results = []
    with cluster(models, options.verify_options, options.draft_options, pin=options.pin) as workers:
        for temperature in temperatures:
            served = Served(workers, options.tokens, texts, options.turns)
            ways = {way: getattr(alone if hasattr(alone, way) else served, way) for way in WAYS}
            if options.ways:
                ways = {way: ways[way] for way in options.ways}
            rates = measure(ways, temperature, options.repetitions)
            result: dict[str, Any] = {"temperature": temperature}
            result |= compare(rates) if len(ways) == len(WAYS) else {k: statistics.median(v) for k, v in rates.items()}
            result["repetitions"] = rates
            result["acceptance"] = {way: a / d for way, (d, a) in served.drafted.items() if d}
            result["drafted"] = {way: d for way, (d, a) in served.drafted.items()}
            results.append(result)
            print(json.dumps(result), file=sys.stderr)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.end_to_end", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--ways", nargs="*")
    parser.add_argument("--verify-options", nargs="*", default=[])
    parser.add_argument("--draft-options", nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    temperatures = (1.0, 0.0) if options.temperature is None else (options.temperature,)
    results = run(options, temperatures)
    if options.json:
        print(json.dumps({"benchmark": "end_to_end", "cases": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
