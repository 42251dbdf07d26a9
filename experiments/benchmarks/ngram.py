"""Gain of n-gram drafts on the target's own texts, and the cost of a drafted token.

The embedded target writes 150 tokens from each held-out prompt at temperatures 0 and 1. Under match these texts are
what any session would get, so drafts are replayed: tokens per verify round with drafts of at most 8 tokens from the
session's own prompt and text (*own*), from these and the texts of the domain that come earlier in the file
(*earlier*), and from these and all other texts of the domain (*history*); the text that is asked for is never among
them. Calibration is how often the drafted tokens whose turn it was were accepted, beside their mean probabilities.

*us a token* is the time of `draft` by drafted tokens, with a history of a million tokens of the standard library's
sources; the least of several calls at each place, since others use the machine.

It takes about 3 minutes on two cores; about 15 s with --quick.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from experiments.harness import benchmark
from experiments.simulation.texts.target_texts import TARGET, TargetText, grouped, index_of_others, write
from goodspeed.embedded import prompts
from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText, NgramIndex

LENGTH = 8
NUM_TOKENS = 150
TEMPERATURES = (0.0, 1.0)
SOURCES = ("own", "earlier", "history")
WANTED = {"own": (1.45, 1.14), "history": (2.24, 1.45)}
NUM_BUCKETS = 10
LIBRARY = Path(random.__file__).parent
DOCUMENT = 4_000  # tokens of one document in the large history


@dataclass
class Replay:
    """Sums over the texts of one domain; buckets are by the probabilities of a drafted token."""

    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    tried: list[int] = field(default_factory=lambda: [0] * NUM_BUCKETS)
    accepted: list[int] = field(default_factory=lambda: [0] * NUM_BUCKETS)
    probabilities: list[float] = field(default_factory=lambda: [0.0] * NUM_BUCKETS)

    def text(self, text: TargetText, histories: Sequence[NgramIndex]) -> None:
        tokens, at = text.prompt + text.written, len(text.prompt)
        growing = GrowingText(text.prompt)
        while at < len(tokens):
            room = min(LENGTH, len(tokens) - at - 1)
            drafted = draft(growing, histories, room, sampling=text.sampling)
            self.num_drafted += len(drafted.tokens)
            self.num_rounds += 1
            num_accepted = self._accept(drafted.tokens, drafted.probabilities, tokens[at:])
            self.num_tokens += num_accepted + 1
            at += num_accepted + 1
            growing.follow(tokens[:at])

    def _accept(self, drafted: Sequence[int], probabilities: Sequence[float], actual: Sequence[int]) -> int:
        """Returns how many drafted tokens the target would have accepted."""
        for position, (token, chance) in enumerate(zip(drafted, probabilities, strict=True)):
            bucket = min(int(chance * NUM_BUCKETS), NUM_BUCKETS - 1)
            self.tried[bucket] += 1
            self.probabilities[bucket] += chance
            if token != actual[position]:
                return position
            self.accepted[bucket] += 1
        return len(drafted)


class Cost(NamedTuple):
    """Microseconds by drafted tokens and by calls, and tokens a call."""

    token_us: float
    call_us: float
    drafted: float


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


def documents(num_tokens: int) -> Iterator[list[int]]:
    """Tokenised sources of the standard library, num_tokens in all."""
    tokenizer = load_tokenizer(TARGET)
    for file in sorted(LIBRARY.glob("*.py")):
        ids = tokenizer(file.read_text("utf-8"))["input_ids"]
        for start in range(0, len(ids), DOCUMENT):
            piece = ids[start : start + min(DOCUMENT, num_tokens)]
            num_tokens -= len(piece)
            yield piece
            if not num_tokens:
                return


def cost(texts: Sequence[TargetText], histories: Sequence[NgramIndex], repetitions: int) -> Cost:
    seconds, num_drafted, num_calls = 0.0, 0, 0
    for text in texts:
        tokens, growing = text.prompt + text.written, GrowingText()
        for at in range(len(text.prompt), len(tokens), 3):
            growing.follow(tokens[:at])
            times = []
            for _ in range(repetitions):
                started = time.perf_counter()
                drafted = draft(growing, histories, LENGTH, sampling=text.sampling)
                times.append(time.perf_counter() - started)
            seconds += min(times)
            num_drafted += len(drafted.tokens)
            num_calls += 1
    return Cost(seconds / max(num_drafted, 1) * 1e6, seconds / num_calls * 1e6, num_drafted / num_calls)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def tokens_per_round(replays: Replays, source: str) -> dict[str, float]:
    """The mean over the domains, by temperature."""
    return {
        temperature: mean([one.num_tokens / max(one.num_rounds, 1) for one in by_domain.values()])
        for temperature, by_domain in replays[source].items()
    }


def rows(replays: Replays) -> list[dict[str, object]]:
    return [
        {
            "source": source,
            "temperature": temperature,
            "domain": domain,
            "tokens_per_round": one.num_tokens / max(one.num_rounds, 1),
            "drafted_per_round": one.num_drafted / max(one.num_rounds, 1),
        }
        for source, by_temperature in replays.items()
        for temperature, by_domain in by_temperature.items()
        for domain, one in by_domain.items()
    ]


def calibration(by_domain: dict[str, Replay]) -> list[dict[str, float]]:
    """Mean probabilities and rate of acceptance by bucket, over all domains."""
    found = []
    for bucket in range(NUM_BUCKETS):
        tried = sum(one.tried[bucket] for one in by_domain.values())
        if tried:
            probabilities = sum(one.probabilities[bucket] for one in by_domain.values()) / tried
            accepted = sum(one.accepted[bucket] for one in by_domain.values()) / tried
            found.append({"tried": tried, "odds": probabilities, "accepted": accepted})
    return found


def show(replays: Replays) -> None:
    names = [one.domain for one in prompts.demo()]
    print(f"{'tokens a round':>16}" + "".join(f"{name:>9}" for name in names) + f"{'mean':>8} drafted  wanted")
    for source, by_temperature in replays.items():
        for number, (temperature, by_domain) in enumerate(by_temperature.items()):
            values = [by_domain[name].num_tokens / max(by_domain[name].num_rounds, 1) for name in names]
            drafted = mean([one.num_drafted / max(one.num_rounds, 1) for one in by_domain.values()])
            wanted = f"{WANTED[source][number]:.2f}" if source in WANTED else "-"
            figures = "".join(f"{value:9.2f}" for value in values)
            print(f"T = {temperature}, {source:>9}{figures}{mean(values):8.2f}{drafted:8.2f}{wanted:>8}")
    for source, by_temperature in replays.items():
        for temperature, by_domain in by_temperature.items():
            cells = [f"{c['odds']:.2f}: {c['accepted']:.2f} ({c['tried']})" for c in calibration(by_domain)]
            print(f"T = {temperature}, {source}, probabilities: accepted (of): {'  '.join(cells)}")


def main() -> int:
    options = benchmark.parser("ngram", __doc__, "fewer and shorter texts, a smaller history").parse_args()
    torch.set_num_threads(1)
    texts = list(write(TEMPERATURES, *((2, 30) if options.quick else (16, NUM_TOKENS))))
    replays = replay(texts)
    show(replays)
    index = large_index(20_000 if options.quick else 1_000_000)
    bytes_per_token = index.num_bytes / index.num_tokens
    print(f"history of {index.num_tokens} tokens in {index.num_texts} texts: {bytes_per_token:.1f} bytes a token")
    timed = [text for number, text in enumerate(texts) if options.quick or number % 128 < 48]
    costs = {
        "own": measure(timed, [], 2 if options.quick else 5),
        "history": measure(timed, [index], 2 if options.quick else 5),
    }
    show_costs(costs)
    benchmark.report(options, summary(replays, costs, bytes_per_token))
    return 0


def large_index(num_tokens: int) -> NgramIndex:
    texts = list(documents(num_tokens))
    random.Random(0).shuffle(texts)
    index = NgramIndex()
    for ids in texts:
        index.add(ids)
    return index


def measure(texts: Sequence[TargetText], histories: Sequence[NgramIndex], repetitions: int) -> dict[str, Cost]:
    """Returns the costs by temperature."""
    return {
        f"{t:g}": cost([text for text in texts if text.sampling.temperature == t], histories, repetitions)
        for t in TEMPERATURES
    }


def show_costs(costs: dict[str, dict[str, Cost]]) -> None:
    for source, by_temperature in costs.items():
        for temperature, one in by_temperature.items():
            call = f"{one.call_us:.1f} us a call of {one.drafted:.2f} tokens"
            print(f"T = {temperature}, {source}: {one.token_us:.1f} us a token, {call}")


def summary(replays: Replays, costs: dict[str, dict[str, Cost]], bytes_per_token: float) -> dict[str, object]:
    return (
        {"benchmark": "ngram"}
        | {source: tokens_per_round(replays, source) for source in SOURCES}
        | {
            "domains": rows(replays),
            "calibration": {s: {t: calibration(by) for t, by in replays[s].items()} for s in SOURCES},
            "bytes_per_token": bytes_per_token,
            "cost": {s: {t: one._asdict() for t, one in by.items()} for s, by in costs.items()},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
