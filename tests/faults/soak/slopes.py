"""Tells whether something grows: slopes of samples over time, and the bound for flat ones. Plain arithmetic.

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
    """Growth per hour."""

    least_squares: float  # through the blocks' medians
    error: float  # one standard error of it
    theil_sen: float  # median of the slopes of all pairs of blocks
    second_half: float  # Theil-Sen, of the later half of the blocks
    first: float  # medians of the first and the last quarter
    last: float
    span_s: float
    num_samples: int

    def is_flat(self, per_hour: float) -> bool:
        """True if the slope is at most `per_hour`, or within two standard errors of zero, or over in the second half.

        A step (a pool of threads that grows by one, a cache that is full) is no leak: what leaks goes on.
        """
        return min(self.least_squares, self.second_half) <= per_hour or self.least_squares <= 2 * self.error


def slope(times_s: ArrayLike, values: ArrayLike) -> Slope:
    """ValueError for fewer than three samples, or samples of one moment."""
    times, levels = np.asarray(times_s, float), np.asarray(values, float)
    if len(times) < 3 or times[-1] <= times[0]:
        raise ValueError("a slope needs at least three samples over some time")
    quarter = max(1, len(times) // 4)
    x, y = blocks(times, levels)
    per_s, error = least_squares(x, y)
    return Slope(
        least_squares=per_s * HOUR_S,
        error=error * HOUR_S,
        theil_sen=theil_sen(x, y) * HOUR_S,
        second_half=theil_sen(x[len(x) // 2 :], y[len(x) // 2 :]) * HOUR_S,
        first=float(np.median(levels[:quarter])),
        last=float(np.median(levels[-quarter:])),
        span_s=float(times[-1] - times[0]),
        num_samples=len(times),
    )


def blocks(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean times and median values of at most NUM_BLOCKS parts of the time, empty ones left out."""
    edges = np.linspace(times[0], times[-1], NUM_BLOCKS + 1)[1:-1]
    number = np.searchsorted(edges, times, side="right")
    parts = [number == part for part in np.unique(number)]
    return np.array([times[part].mean() for part in parts]), np.array([np.median(values[part]) for part in parts])


def least_squares(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and its standard error; an infinite error where two points leave nothing to tell it from."""
    found = stats.linregress(x, y)
    return float(found.slope), float(found.stderr) if len(x) > 2 else float("inf")


def theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    """Median of the slopes of all pairs: a few outliers change nothing. 0 for a single point."""
    return float(stats.theilslopes(y, x).slope) if len(x) > 1 else 0.0
