"""Tells whether something grows: the slope of samples over time, and the bound for flat ones. Plain arithmetic.

Neighbouring samples of a process are alike, so an error told from each of them would be far too small: samples are
first brought together in blocks of equal time, and the line is laid through the blocks' medians.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

HOUR_S = 3600.0
NUM_BLOCKS = 16
"""Enough for a line and its error, few enough that blocks of a minute or more say little about each other."""


@dataclass(frozen=True)
class Slope:
    """Growth per hour, by least squares."""

    per_hour: float
    error: float  # one standard error of it
    later: float  # of the second half of the time

    def is_flat(self, per_hour: float) -> bool:
        """True if the slope is at most `per_hour`, or within two standard errors of zero, or over in the second half.

        A step (a pool of threads that grows by one, a cache that is full) is no leak: what leaks goes on.
        """
        return min(self.per_hour, self.later) <= per_hour or self.per_hour <= 2 * self.error


def slope(times_s: ArrayLike, values: ArrayLike) -> Slope:
    """Lays a line through samples of many moments."""
    times, levels = np.asarray(times_s, float), np.asarray(values, float)
    edges = np.linspace(times[0], times[-1], NUM_BLOCKS + 1)[1:-1]
    number = np.searchsorted(edges, times, side="right")
    parts = [number == part for part in np.unique(number)]
    x, y = np.array([times[part].mean() for part in parts]), np.array([np.median(levels[part]) for part in parts])
    line, later = stats.linregress(x, y), stats.linregress(x[len(x) // 2 :], y[len(x) // 2 :])
    return Slope(float(line.slope) * HOUR_S, float(line.stderr) * HOUR_S, float(later.slope) * HOUR_S)
