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
    second_half: float  # median of the slopes of all pairs of the later half of the blocks
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
    line, half = stats.linregress(x, y), len(x) // 2
    return Slope(
        least_squares=float(line.slope) * HOUR_S,
        error=float(line.stderr) * HOUR_S if len(x) > 2 else float("inf"),  # two points tell no error
        second_half=float(stats.theilslopes(y[half:], x[half:]).slope) * HOUR_S if len(x) - half > 1 else 0.0,
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
