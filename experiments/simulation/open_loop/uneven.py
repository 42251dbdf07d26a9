"""Texts in which some tokens are easy to draft and others are not, and a draft model that knows which are which.

The probabilities of each position are drawn from a Beta distribution. A drafted token agrees with just these
probabilities, and they are what the draft model claims: claims are calibrated, and tell no more than how likely a
token is right.
"""

from dataclasses import dataclass
from functools import cache

from scipy.stats import beta

from experiments.simulation.texts.text import draw, feed

NUM_LEVELS = 512
"""Probabilities that are told apart; quantiles of the distribution."""


@dataclass(frozen=True, slots=True)
class Uneven:
    """One text's acceptance process."""

    mean: float  # of the probabilities
    evenness: float  # the Beta distribution's a + b: 0 is sure or impossible, infinity equally likely everywhere
    seed: int  # of the text

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return self.probabilities(position, offset)

    def probabilities(self, position: int, offset: int) -> float:
        _, chance = draw(feed(self.seed, position))
        return _levels(self.mean, self.evenness)[int(chance * NUM_LEVELS)]


@cache
def _levels(mean: float, evenness: float) -> tuple[float, ...]:
    """The distribution's quantiles, at the middle of each level."""
    a, b = mean * evenness, (1.0 - mean) * evenness
    return tuple(float(value) for value in beta.ppf([(k + 0.5) / NUM_LEVELS for k in range(NUM_LEVELS)], a, b))
