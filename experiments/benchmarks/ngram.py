"""Gain of n-gram drafts on the target's own texts.

The embedded target writes 150 tokens from each held-out prompt at temperatures 0 and 1. Under match these texts are
what any session would get, so drafts are replayed: tokens per verify round with drafts of at most 8 tokens from the
session's own prompt and text (*own*), from these and the texts of the domain that come earlier in the file
(*earlier*), and from these and all other texts of the domain (*history*); the text that is asked for is never among
them.

It takes about 2 minutes on two cores; about 10 s with --quick.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from experiments.harness import benchmark
from experiments.simulation.texts.target_texts import TargetText, answers, asked, grouped, index_of_others
from goodspeed.embedded import prompts
from goodspeed.engine.torch import checkpoints
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText, NgramIndex

LENGTH = 8
NUM_TOKENS = 150
TEMPERATURES = (0.0, 1.0)
SOURCES = ("own", "earlier", "history")
WANTED = {"own": (1.45, 1.14), "history": (2.24, 1.45)}


@dataclass
class Replay:
    """Sums over the texts of one domain."""

    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0

    def text(self, text: TargetText, histories: Sequence[NgramIndex]) -> None:
        tokens, at = text.prompt + text.written, len(text.prompt)
        growing = GrowingText(text.prompt)
        while at < len(tokens):
            room = min(LENGTH, len(tokens) - at - 1)
            drafted = draft(growing, histories, room, sampling=text.sampling).tokens
            equal = [one == other for one, other in zip(drafted, tokens[at:], strict=False)]
            num_accepted = equal.index(False) if False in equal else len(equal)
            self.num_drafted += len(drafted)
            self.num_rounds += 1
            self.num_tokens += num_accepted + 1
            at += num_accepted + 1
            growing.follow(tokens[:at])

    @property
    def tokens_a_round(self) -> float:
        return self.num_tokens / max(self.num_rounds, 1)

    @property
    def drafted_a_round(self) -> float:
        return self.num_drafted / max(self.num_rounds, 1)


Replays = dict[str, dict[str, dict[str, Replay]]]  # [source][temperature][domain]


def replay(texts: Sequence[TargetText]) -> Replays:
    found: Replays = {source: {f"{t:g}": {} for t in TEMPERATURES} for source in SOURCES}
    for group in grouped(texts):
        domain, temperature = group[0].domain, group[0].sampling.temperature
        for source in SOURCES:
            one = found[source][f"{temperature:g}"][domain] = Replay()
            for number, text in enumerate(group):
                one.text(text, histories(source, group, number))
    return found


def histories(source: str, group: Sequence[TargetText], number: int) -> list[NgramIndex]:
    """The indexes that may draft for a text of a group: none has the text itself."""
    if source == "own":
        return []
    return [index_of_others(group[: number + 1] if source == "earlier" else group, group[number])]


def tokens_per_round(replays: Replays, source: str) -> dict[str, float]:
    """The mean over the domains, by temperature."""
    return {
        temperature: fmean([one.tokens_a_round for one in by_domain.values()])
        for temperature, by_domain in replays[source].items()
    }


def rows(replays: Replays) -> list[dict[str, object]]:
    return [
        {
            "source": source,
            "temperature": temperature,
            "domain": domain,
            "tokens_per_round": one.tokens_a_round,
            "drafted_per_round": one.drafted_a_round,
        }
        for source, by_temperature in replays.items()
        for temperature, by_domain in by_temperature.items()
        for domain, one in by_domain.items()
    ]


def show(replays: Replays) -> None:
    names = [one.domain for one in prompts.demo()]
    print(f"{'tokens a round':>16}" + "".join(f"{name:>9}" for name in names) + f"{'mean':>8} drafted  wanted")
    for source, by_temperature in replays.items():
        for number, (temperature, by_domain) in enumerate(by_temperature.items()):
            values = [by_domain[name].tokens_a_round for name in names]
            drafted = fmean([one.drafted_a_round for one in by_domain.values()])
            wanted = f"{WANTED[source][number]:.2f}" if source in WANTED else "-"
            figures = "".join(f"{value:9.2f}" for value in values)
            print(f"T = {temperature}, {source:>9}{figures}{fmean(values):8.2f}{drafted:8.2f}{wanted:>8}")


def main() -> int:
    options = benchmark.parser("ngram", __doc__, "fewer and shorter texts").parse_args()
    torch.set_num_threads(1)
    per_domain, num_tokens = (2, 30) if options.quick else (16, NUM_TOKENS)
    chosen = prompts.load()[: per_domain * prompts.NUM_DOMAINS]
    target = checkpoints.load("tiny-target")
    replays = replay(list(answers(target, asked(target, chosen, TEMPERATURES), num_tokens)))
    show(replays)
    means = {source: tokens_per_round(replays, source) for source in SOURCES}
    benchmark.report(options, {"benchmark": "ngram", **means, "domains": rows(replays)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
