"""Requests of several kinds at random, with texts that are easy and hard to draft in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from scipy.stats import beta

from experiments.simulation.arrivals import Arrival
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.text import draw, feed
from goodspeed.slo.objectives import Objectives

NUM_LEVELS = 512
"""Probabilities that are told apart; quantiles of the distribution."""


@dataclass(frozen=True, slots=True)
class Uneven(Acceptance):
    """One text's acceptance process."""

    mean: float  # of the probabilities
    evenness: float  # the Beta distribution's a + b: 0 is sure or impossible, infinity equally likely everywhere
    seed: int  # of the text

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        _, chance = draw(feed(self.seed, position))
        return _levels(self.mean, self.evenness)[int(chance * NUM_LEVELS)]


@cache
def _levels(mean: float, evenness: float) -> tuple[float, ...]:
    """The distribution's quantiles, at the middle of each level."""
    a, b = mean * evenness, (1.0 - mean) * evenness
    return tuple(float(value) for value in beta.ppf([(k + 0.5) / NUM_LEVELS for k in range(NUM_LEVELS)], a, b))


@dataclass(frozen=True)
class Kind:
    """One kind of request; all of a kind are alike but for their texts."""

    name: str
    share: float  # of all requests
    prompt_tokens: int
    output_tokens: int
    acceptance: float  # mean probabilities of a drafted token
    tpot_s: float | None = None  # its service level; None: none

    def arrival(self, at_s: float, evenness: float, random: Random) -> Arrival:
        """One request. evenness: of the probabilities of its drafted tokens (`mix.py`)."""
        text = Uneven(self.acceptance, evenness, random.getrandbits(50))
        slo = None if self.tpot_s is None else Objectives(tpot_s=self.tpot_s, tier=self.name, tpot_window=0)
        return Arrival(at_s, self.prompt_tokens, self.output_tokens, text, slo)


def mixed(times: Sequence[float], kinds: Sequence[Kind], evenness: float, random: Random) -> list[Arrival]:
    """Requests at these times, each of a kind by the kinds' shares."""
    shares = [kind.share for kind in kinds]
    return [random.choices(kinds, shares)[0].arrival(at_s, evenness, random) for at_s in times]


def bells(
    peaks: Sequence[tuple[float, Kind]], each: int, spread_s: float, end_s: float, evenness: float, random: Random
) -> list[Arrival]:
    """So many requests of each kind around its peak, in seconds. spread_s: standard deviation.

    Those that would come after `end_s` come at `end_s`.
    """
    times = [(min(max(0.0, random.gauss(at_s, spread_s)), end_s), kind) for at_s, kind in peaks for _ in range(each)]
    return [kind.arrival(at_s, evenness, random) for at_s, kind in sorted(times, key=lambda pair: pair[0])]
