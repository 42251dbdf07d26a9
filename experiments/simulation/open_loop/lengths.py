"""How long prompts and answers are: a log-normal distribution by its mean and its 99th percentile, without its end.

The longest of two hundred are left out (`KEPT`), so that no text is longer than twice the 99th percentile. A standard
deviation is not fitted: a log-normal distribution has no more than two numbers.
"""

from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import NormalDist

from scipy.optimize import brentq

from goodspeed.errors import ConfigError

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

    def drawn(self, chance: float) -> int:
        """The length at this quantile, from 0 to below 1, of what is kept."""
        middle, spread = _fitted(self.mean, self.p99)
        # a chance of exactly 0 has no finite quantile
        return max(1, round(self.scale * exp(middle + spread * _NORMAL.inv_cdf(max(chance, 1e-9) * KEPT))))


@cache
def _fitted(mean: float, p99: float) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm, before the end is left out."""
    spread = float(brentq(lambda spread: _ratio(spread) - p99 / mean, 1e-6, _P99))
    return log(p99) - spread * _P99, spread


def _ratio(spread: float) -> float:
    """The 99th percentile over the mean; it rises up to a spread of about the percentile's quantile."""
    return exp(spread * _P99 - spread * spread / 2) * KEPT / _NORMAL.cdf(_END - spread)
