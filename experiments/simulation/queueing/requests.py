"""Requests of a service: when they come, how long their texts are, and what each of their rounds accepts.

Lengths are of a recorded service, or drawn; agreement is that of a recorded text of the given domains, from a place of
its own on. So every order meets the very same rounds.
"""

import csv
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

from experiments.simulation.open_loop.traffic import FOLDER
from experiments.simulation.texts import proposals
from goodspeed.errors import ConfigError

ALL = "all"
SHORTEST = 50
"""Tokens of the shortest text whose agreement a longer one has over and over, if there are others."""

MADE_TOKENS = 1000
"""The length of a path that is made up; longer texts go through it again."""


@dataclass(frozen=True)
class Kind:
    """One kind of requests. Lengths are of a trace, or lie around a mean."""

    prompt_tokens: int
    domains: list[str] = field(default_factory=list)
    """Recorded texts whose agreement they have: of all domains (`all`), or of those of these that were recorded."""
    acceptance: tuple[float, float] = (0.0, 1.0)  # without domains: every text's own rate lies anywhere between
    trace: str | None = None  # of whose outputs they are as long as: name of a trace's file, without endings
    output_tokens: float = 0.0
    output_spread: float = 0.0  # standard deviation
    max_context: int = 2048


@dataclass(frozen=True, slots=True)
class Request:
    """One request, with its whole future."""

    number: int
    at_s: float
    prompt_tokens: int
    output_tokens: int
    predicted_tokens: int  # what a length predictor says before it begins
    recorded_prompt: int  # tokens of the prompt in the trace that the length is of, by which lengths are learned
    accepted: tuple[int, ...]  # drafted tokens that each of its rounds accepts


def make(
    kind: Kind,
    number: int,
    window_s: float,
    num_drafted: int,
    prediction_error: float,
    random: Random,
    recordings: str = "",
) -> list[Request]:
    """So many requests that come at any time of the window, independently.

    num_drafted: in each round. prediction_error: sigma of the log-normal error of predicted lengths. recordings: the
    file of the domains' texts; empty: the shipped one.
    """
    times, paths = sorted(random.uniform(0.0, window_s) for _ in range(number)), _paths(kind, recordings)
    return [
        _request(kind, paths, index, at_s, num_drafted, prediction_error, random) for index, at_s in enumerate(times)
    ]


def _request(
    kind: Kind, paths: Sequence[str], number: int, at_s: float, num_drafted: int, error: float, random: Random
) -> Request:
    recorded_prompt, output_tokens = _lengths(kind, random)
    path = random.choice(paths) if paths else _made(kind, random)
    predicted = max(1, round(output_tokens * math.exp(random.gauss(0.0, error))))
    accepted = rounds(path, random.randrange(len(path)), output_tokens, num_drafted)
    return Request(number, at_s, kind.prompt_tokens, output_tokens, predicted, recorded_prompt, accepted)


def _paths(kind: Kind, recordings: str) -> list[str]:
    """The recorded agreement of all texts of its domains, with each of the draft models that stand for a family's."""
    if not kind.domains:
        return []
    known = proposals.load(recordings)
    recorded = [known.paths(model) for model in dict.fromkeys((known.stand_in(0), known.stand_in(1)))]
    there = sorted(recorded[0])
    domains = there if kind.domains == [ALL] else [name for name in kind.domains if name in there]
    if not domains:
        what = f"{known.path} has no texts of {', '.join(kind.domains)}, only of {', '.join(there)}"
        raise ConfigError(f"{what}; give --config a file whose kinds have domains of these")
    paths = [path for own in recorded for domain in domains for path in own[domain]]
    return [path for path in paths if len(path) >= SHORTEST] or paths


def _made(kind: Kind, random: Random) -> str:
    rate = random.uniform(*kind.acceptance)
    return "".join("1" if random.random() < rate else "0" for _ in range(MADE_TOKENS))


def history(kind: Kind, number: int, random: Random) -> list[tuple[int, int]]:
    """Tokens of prompt and text of so many earlier requests."""
    return [_lengths(kind, random) for _ in range(number)]


def _lengths(kind: Kind, random: Random) -> tuple[int, int]:
    """Tokens of a prompt, as it was recorded, and of the text."""
    if kind.trace is not None:
        prompt, drawn = random.choice(lengths(kind.trace))
    else:
        prompt, drawn = kind.prompt_tokens, max(1, round(random.gauss(kind.output_tokens, kind.output_spread)))
    return prompt, min(drawn, kind.max_context - kind.prompt_tokens)


def rounds(path: str, start: int, num_tokens: int, num_drafted: int) -> tuple[int, ...]:
    """Tokens accepted in each round of a text whose agreement is `path` over and over, from `start` on."""
    position, left, accepted = start, num_tokens, []
    while left > 0:
        number = 0
        while number < num_drafted and path[(position + number) % len(path)] == "1":
            number += 1
        accepted.append(number)
        position += number + 1
        left -= number + 1
    return tuple(accepted)


@cache
def lengths(trace: str) -> Sequence[tuple[int, int]]:
    """Tokens of prompt and output of a trace's requests."""
    with gzip.open(FOLDER / f"{trace}.csv.gz", "rt", newline="") as lines:
        found = [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(lines)]
        return [(prompt, output) for prompt, output in found if output > 0]
