"""Ranks the target's own token among a drafter's likeliest: what a second choice in a token tree brings.

The embedded target writes 150 tokens from held-out prompts of each domain at temperatures 0, 0.7 and 1. At every
position of these texts a drafter orders the tokens as it would draft them under match: by its probability over the
match rule's noise, and at temperature 0 by its probability. Drafters are both draft models, and n-gram indexes of the
text itself (*own*) and of the domain's other texts beside it (*history*). The table has the share of positions at which
the target's token has rank 1, 2, ... 8; an index that finds no match has no rank there. *second* is the share of rank 2
among the positions at which rank 1 missed: a token tree pays where that is high. Nothing here is timed.

It takes about 3 minutes on one core; about 15 s with --quick.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from experiments.harness import benchmark
from experiments.simulation.texts.target_texts import TargetText, grouped, index_of_others, write, written_logits
from goodspeed.engine import checkpoints
from goodspeed.exact.noise import match_noise
from goodspeed.exact.noise_at import match_key, noise_at
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import blend, find, follow

TEMPERATURES = (0.0, 0.7, 1.0)
MODELS = ("tiny-draft-s", "tiny-draft-m")
INDEXES = ("own", "history")
NUM_RANKS = 8
PER_DOMAIN, NUM_TOKENS = 16, 150


@dataclass
class Ranks:
    """Positions of one domain's texts at which the target's token had each rank."""

    num_positions: int = 0
    num_at: list[int] = field(default_factory=lambda: [0] * NUM_RANKS)

    def add(self, rank: int | None) -> None:
        """rank: from 0; None where the drafter has nothing to say, or the token is none of its first."""
        self.num_positions += 1
        if rank is not None and rank < NUM_RANKS:
            self.num_at[rank] += 1

    @property
    def shares(self) -> list[float]:
        return [number / max(1, self.num_positions) for number in self.num_at]


Table: TypeAlias = dict[str, dict[str, dict[str, Ranks]]]
"""By drafter, temperature and domain."""


def measure(texts: Sequence[TargetText]) -> Table:
    """Replays every text by every drafter."""
    table: Table = {
        drafter: defaultdict(lambda: defaultdict(Ranks)) for drafter in (*MODELS, *map("n-gram, {}".format, INDEXES))
    }
    for name in MODELS:
        for text, ranks in zip(texts, model_ranks(name, texts), strict=True):
            _add(table[name], text, ranks)
    for group in grouped(texts):
        for text in group:
            _add(table["n-gram, own"], text, index_ranks(text, []))
            _add(table["n-gram, history"], text, index_ranks(text, [index_of_others(group, text)]))
    return table


def _add(found: dict[str, dict[str, Ranks]], text: TargetText, ranks: Sequence[int | None]) -> None:
    for rank in ranks:
        found[f"{text.sampling.temperature:g}"][text.domain].add(rank)


@torch.inference_mode()
def model_ranks(name: str, texts: Sequence[TargetText]) -> Iterator[list[int]]:
    """Yields the rank of each written token of each text, all before it being the target's."""
    checkpoint = checkpoints.load(name)
    for text, logits in zip(texts, written_logits(checkpoint, texts), strict=True):
        scores = noisy_scores(logits, text, checkpoint.num_tokens)
        own = scores.gather(1, torch.tensor(text.written)[:, None])
        yield (scores > own).sum(1).tolist()


def noisy_scores(logits: Tensor, text: TargetText, num_tokens: int) -> Tensor:
    """The numbers by which the match rule orders the tokens at each written position [num_positions, num_tokens]."""
    if text.sampling.temperature == 0:
        return logits[:, :num_tokens]
    num = len(logits)
    batch = SamplingBatch.of([text.sampling] * num)
    positions = torch.arange(len(text.prompt), len(text.prompt) + num)
    probs = to_probs(logits, batch, num_tokens=num_tokens)
    return probs / match_noise(batch.seeds, positions, num_tokens)


def index_ranks(text: TargetText, histories: Sequence[NgramIndex]) -> list[int | None]:
    """The rank of each written token among those that followed the text's end before; None where it is none of them."""
    tokens, growing = text.prompt + text.written, GrowingText()
    ranks: list[int | None] = []
    for at in range(len(text.prompt), len(tokens)):
        growing.follow(tokens[:at])
        order = _order(growing, histories, text, at)
        ranks.append(order.index(tokens[at]) if tokens[at] in order else None)
    return ranks


def _order(growing: GrowingText, histories: Sequence[NgramIndex], text: TargetText, at: int) -> list[int]:
    """The tokens that followed before, in the order in which the match rule would draft them."""
    matches = find(growing, histories)
    shares, _ = blend(follow(matches, 0)) if matches else ({}, 0)
    scores = dict(shares)
    if text.sampling.temperature:
        noises = noise_at(match_key(text.sampling.seed, at), shares)
        scores = {token: share / noise for (token, share), noise in zip(shares.items(), noises, strict=True)}
    return sorted(scores, key=scores.__getitem__, reverse=True)


def mean(by_domain: dict[str, Ranks]) -> list[float]:
    """The mean over the domains of the share of each rank."""
    return [sum(shares) / len(by_domain) for shares in zip(*(one.shares for one in by_domain.values()), strict=True)]


def second(shares: Sequence[float]) -> float:
    """The share of rank 2 among the positions at which rank 1 missed."""
    return shares[1] / max(1e-9, 1.0 - shares[0])


def show(table: Table) -> None:
    print(f"{'':<18}{'T':>4}  " + "".join(f"{rank:>7}" for rank in range(1, NUM_RANKS + 1)) + f"{'second':>9}")
    for drafter, by_temperature in table.items():
        for temperature, by_domain in by_temperature.items():
            shares = mean(by_domain)
            print(
                f"{drafter:<18}{temperature:>4}  " + "".join(f"{one:7.3f}" for one in shares) + f"{second(shares):9.2f}"
            )
            domains = ", ".join(f"{name} {one.shares[0]:.2f}/{one.shares[1]:.2f}" for name, one in by_domain.items())
            print(f"{'':<24}rank 1/2: {domains}")


def summary(table: Table) -> dict[str, object]:
    return {
        "benchmark": "ranks",
        "ranks": {
            drafter: {
                temperature: {"mean": mean(by_domain)} | {name: one.shares for name, one in by_domain.items()}
                for temperature, by_domain in by_temperature.items()
            }
            for drafter, by_temperature in table.items()
        },
    }


def main() -> int:
    options = benchmark.parser("ranks", __doc__, "one short text of each domain").parse_args()
    torch.set_num_threads(1)
    texts = write(TEMPERATURES, *((1, 20) if options.quick else (PER_DOMAIN, NUM_TOKENS)))
    table = measure([text for text in texts if text.written])
    show(table)
    benchmark.report(options, summary(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
