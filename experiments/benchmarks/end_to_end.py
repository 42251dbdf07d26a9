"""Tokens per second of GoodSpeed beside what users would pick instead: the same models, prompts and machine, one run.

*plain*: the target's own `generate`, one stream. *assisted*: Hugging Face assisted generation, one stream (it takes no
batches, so eight users are eight streams in turn). *plain_8*: `generate` of a batch of eight. *goodspeed_1*,
*goodspeed_8*: one and eight draft nodes, each a process, served by one verify node; with *_no_speculation* the same
with drafts of length 0: what the engine alone gives. Every text has the same length (nothing ends early), one prompt of
each of the eight domains. With eight clients each asks for several domains in an order of its own, one after the other,
so eight different texts are always being written, as in a batch of plain_8. All ways take turns in every repetition;
medians.

It takes about 4 minutes on two cores; about 20 s with --quick.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from experiments.benchmarks.workers import DraftWorker, Wanted, cluster, serve_all
from goodspeed.embedded import prompts
from goodspeed.engine import checkpoints
from goodspeed.engine.text import encode_prompt
from goodspeed.wire.messages import MAX_DRAFT

TARGET, DRAFTS = "tiny-target", ("tiny-draft-s", "tiny-draft-m")
NUM_CLIENTS = 8
WANTED = {"ratio_1": 1.2, "ratio_8": 0.98, "ratio_8_sequential": 2.5}
WAYS = (
    *("plain", "assisted", "plain_8"),
    *("goodspeed_1", "goodspeed_1_no_speculation", "goodspeed_8", "goodspeed_8_no_speculation"),
)


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
    """Loads a model with `from_pretrained`, and removes whatever ends a text before its length."""
    checkpoint = checkpoints.load(name)
    model: Any = checkpoint.model
    model.generation_config.eos_token_id = None
    return model


class Served:
    """The same texts through GoodSpeed's processes."""

    def __init__(self, workers: list[DraftWorker], num_tokens: int, texts: Sequence[list[int]], turns: int) -> None:
        self.workers = workers
        self.num_tokens = num_tokens
        self.texts = texts
        self.turns = turns
        self.num_drafted: Counter[str] = Counter()  # by way
        self.num_accepted: Counter[str] = Counter()

    def goodspeed_1(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_1", self.workers[:1], self._one(temperature, MAX_DRAFT))

    def goodspeed_1_no_speculation(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_1_no_speculation", self.workers[:1], self._one(temperature, 0))

    def goodspeed_8(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_8", self.workers, self._everybody(temperature, MAX_DRAFT))

    def goodspeed_8_no_speculation(self, temperature: float) -> list[list[int]]:
        return self._serve("goodspeed_8_no_speculation", self.workers, self._everybody(temperature, 0))

    def _one(self, temperature: float, max_draft: int) -> list[list[Wanted]]:
        return [[self._wanted(number, temperature, max_draft) for number in range(len(self.texts))]]

    def _everybody(self, temperature: float, max_draft: int) -> list[list[Wanted]]:
        return [
            [self._wanted(client + turn, temperature, max_draft) for turn in range(self.turns)]
            for client in range(len(self.workers))
        ]

    def _wanted(self, number: int, temperature: float, max_draft: int = MAX_DRAFT) -> Wanted:
        number %= len(self.texts)
        return Wanted(self.texts[number], self.num_tokens, temperature, number, max_draft)

    def _serve(self, way: str, workers: list[DraftWorker], wanted: list[list[Wanted]]) -> list[list[int]]:
        _, served = serve_all(workers, wanted)
        everything = [one for own in served for one in own]
        self.num_drafted[way] += sum(one.num_drafted for one in everything)
        self.num_accepted[way] += sum(one.num_accepted for one in everything)
        return [one.tokens for one in everything]


class Comparison:
    """All ways in turn, at one temperature."""

    def __init__(self, alone: Alone, served: Served, temperature: float) -> None:
        self.served = served
        self.temperature = temperature
        self.ways = {way: getattr(alone if hasattr(alone, way) else served, way) for way in WAYS}
        self.rates: dict[str, list[float]] = {way: [] for way in WAYS}  # tokens per second in each repetition
        self.num_different = 0

    def run(self, repetitions: int) -> dict[str, Any]:
        """Runs all ways; leaves out the first repetition, which warms up."""
        for repetition in range(repetitions + 1):
            texts = {}
            for way, serve in self.ways.items():
                started = time.perf_counter()
                texts[way] = serve(self.temperature)
                seconds = time.perf_counter() - started
                if repetition:
                    self.rates[way].append(sum(map(len, texts[way])) / seconds)
            self.num_different += self._differ(texts)
            print(f"T={self.temperature:g}: repetition {repetition} of {repetitions}", file=sys.stderr)
        return self._result()

    def _differ(self, texts: dict[str, list[list[int]]]) -> int:
        """Counts GoodSpeed's texts that differ from the first of the same prompt and seed; near-ties can."""
        turns = self.served.turns
        first = texts["plain"] if self.temperature == 0 else texts["goodspeed_1"]
        num_different = sum(one != other for one, other in zip(texts["goodspeed_1"], first, strict=True))
        for way in ("goodspeed_8", "goodspeed_8_no_speculation"):
            for index, tokens in enumerate(texts[way]):
                client, turn = divmod(index, turns)
                num_different += tokens != first[(client + turn) % len(first)]
        return num_different

    def _result(self) -> dict[str, Any]:
        median = {way: statistics.median(rates) for way, rates in self.rates.items()}
        ratios = {
            "ratio_1": median["goodspeed_1"] / max(median["plain"], median["assisted"]),
            "ratio_8": median["goodspeed_8"] / max(median["plain_8"], median["goodspeed_8_no_speculation"]),
            "ratio_8_sequential": median["goodspeed_8"] / median["assisted"],
        }
        drafted = {way: num for way, num in self.served.num_drafted.items() if num}
        acceptance = {way: self.served.num_accepted[way] / num for way, num in drafted.items()}
        details = {"acceptance": acceptance, "num_different": self.num_different, "repetitions": self.rates}
        about = {"temperature": self.temperature, "num_clients": len(self.served.workers)}
        return about | median | ratios | details


def show(result: dict[str, Any]) -> None:
    few = (
        "" if result["num_clients"] == NUM_CLIENTS else f", with {result['num_clients']} clients and texts instead of 8"
    )
    print(f"temperature {result['temperature']:g}: tokens/s (median; lowest to highest){few}")
    for way in WAYS:
        rates = result["repetitions"][way]
        print(f"  {way:<28} {result[way]:>7.1f}   ({min(rates):.1f} to {max(rates):.1f})")
    for name, wanted in WANTED.items():
        print(f"  {name:<28} {result[name]:>7.2f}   (wanted: at least {wanted})")
    accepted = ", ".join(f"{way} {share:.2f}" for way, share in result["acceptance"].items())
    print(f"  share of drafted tokens accepted: {accepted}; texts that differ: {result['num_different']}")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    tokenizer = checkpoints.load_tokenizer(TARGET)
    texts = [encode_prompt(tokenizer, prompt.prompt) for prompt in prompts.demo()[: options.clients]]
    alone = Alone(options.tokens, texts)
    models = [DRAFTS[number % len(DRAFTS)] for number in range(options.clients)]
    results = []
    with cluster(models, options.verify, options.draft, pin=options.pin) as workers:
        for temperature in options.temperature:
            served = Served(workers, options.tokens, texts, options.turns)
            results.append(Comparison(alone, served, temperature).run(options.repetitions))
            show(results[-1])
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.end_to_end", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two clients instead of eight, one short repetition")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line; T = 1 at its top")
    parser.add_argument("--tokens", type=int, default=64, help="length of every text (default 64)")
    parser.add_argument("--turns", type=int, default=2, help="texts of each of the eight clients (default 2)")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0, 0.0], help="default: 1 0")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help="a core for the verify node")
    parser.add_argument("--verify", nargs="*", default=[], help="options of goodspeed-verify, as --verify=--cost=none")
    parser.add_argument("--draft", nargs="*", default=[], help="options of goodspeed-draft")
    parser.set_defaults(clients=NUM_CLIENTS)
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.turns, options.repetitions, options.clients = 8, 2, 1, 2
        options.temperature = options.temperature[:1]
    return options


def main() -> int:
    options = parse()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # it warns about its own defaults
    results = run(options)
    if options.json:
        print(json.dumps({"benchmark": "end_to_end", **results[0], "cases": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
