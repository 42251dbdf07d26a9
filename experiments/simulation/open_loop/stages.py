"""Requests of stages: a prompt that is read by a multiple of the time that it takes alone, and an answer at a TPOT.

Every request is drawn from its own place in the trace, so it is the same one at every rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from random import Random
from statistics import NormalDist

from scipy.optimize import brentq

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.mix import Uneven
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel
from goodspeed.slo.objectives import Objectives

KEPT = 0.995
"""The share of the distribution that is drawn from: its shortest part."""

_NORMAL = NormalDist()
_END, _P99 = _NORMAL.inv_cdf(KEPT), _NORMAL.inv_cdf(0.99 * KEPT)


@dataclass(frozen=True)
class Lengths:
    """A distribution of numbers of tokens, all of them 1 or more."""

    mean: float
    p99: float
    scale: float = 1.0  # all lengths are shortened to this share

    def __post_init__(self) -> None:
        if not (1.0 <= self.mean < self.p99 < self.mean * _ratio(_P99) and 0.0 < self.scale <= 1.0):
            raise ConfigError(
                f"no lengths have a mean of {self.mean} and a 99th percentile of {self.p99}: the percentile is above "
                f"the mean, and below {_ratio(_P99):.1f} times the mean; the scale {self.scale} is from 0 to 1"
            )

    def drawn(self, quantile: float) -> int:
        """The length at a quantile from 0 to below 1, of what is kept."""
        middle, spread = _fitted(self.mean, self.p99)
        # a quantile of exactly 0 has no finite quantile
        return max(1, round(self.scale * exp(middle + spread * _NORMAL.inv_cdf(max(quantile, 1e-9) * KEPT))))


@cache
def _fitted(mean: float, p99: float) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm, before the end is left out."""
    spread = float(brentq(lambda spread: _ratio(spread) - p99 / mean, 1e-6, _P99))
    return log(p99) - spread * _P99, spread


def _ratio(spread: float) -> float:
    """The 99th percentile over the mean; it rises up to a spread of about the percentile's quantile."""
    return exp(spread * _P99 - spread * spread / 2) * KEPT / _NORMAL.cdf(_END - spread)


@dataclass(frozen=True)
class Stage:
    """One kind of request, by the distributions of its lengths and by its service level."""

    name: str
    share: float  # of all requests
    prompt: Lengths
    output: Lengths
    slowdown: float  # its TTFT over the time in which its prompt is read alone
    tpot_ms: float


@dataclass(frozen=True)
class Texts:
    """The difficulty of drafting a text's tokens."""

    acceptance: float  # mean probabilities of a drafted token
    evenness: float  # of these (`mix.py`)


def requests(
    times: Sequence[float], stages: Sequence[Stage], texts: Texts, cost: CostModel, random: Random
) -> list[Arrival]:
    """One request at each of these times. cost: of the rounds in which a prompt is read alone."""
    shares = [stage.share for stage in stages]
    return [_request(at_s, random.choices(stages, shares)[0], texts, cost, random) for at_s in times]


def _request(at_s: float, stage: Stage, texts: Texts, cost: CostModel, random: Random) -> Arrival:
    prompt, output = stage.prompt.drawn(random.random()), stage.output.drawn(random.random())
    text = Uneven(texts.acceptance, texts.evenness, random.getrandbits(50))
    slo = Objectives(stage.slowdown * cost.round_s(prompt, 1, 0), stage.tpot_ms / 1000, stage.name)
    return Arrival(at_s, prompt, output, text, slo)
