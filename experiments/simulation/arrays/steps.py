"""Step sizes of Eq. (3) that follow what is seen: the paper's "reduce eta if the variance exceeds a threshold", and the
opposite, Trigg and Leach's tracking signal, which raises eta while the errors have a direction.

For the array path (`simulation/arrays`): a rule is told every round's errors and gives the next round's eta.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from goodspeed.fair.policies.base import Floats, Ints

MEMORY = 0.1  # how soon means of errors and of their squares forget


class Rule(Protocol):
    """A rule for the step sizes of all clients of all worlds; arrays [worlds, clients]."""

    def eta(self, errors: Floats, drafted: Ints) -> Floats:
        """errors: mean agreement of each draft less the estimate before it; of no meaning where nothing was drafted."""
        ...


class LessWithVariance:
    """eta, less in proportion where the errors' mean square lies above a threshold."""

    def __init__(self, eta: float, threshold: float) -> None:
        self._eta, self._threshold = eta, threshold
        self._square: Floats | None = None

    def eta(self, errors: Floats, drafted: Ints) -> Floats:
        known = np.full(errors.shape, self._threshold) if self._square is None else self._square
        self._square = np.where(drafted > 0, known + MEMORY * (errors**2 - known), known)
        less: Floats = self._eta * np.minimum(1.0, self._threshold / np.maximum(self._square, 1e-12))
        return less


class MoreWithChange:
    """eta from `low` to `high` with the square of |mean error| / mean |error|: 1 where all errors point one way."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high
        self._mean: Floats | float = 0.0
        self._size: Floats | float = 0.0

    def eta(self, errors: Floats, drafted: Ints) -> Floats:
        told = drafted > 0
        self._mean = np.where(told, self._mean + MEMORY * (errors - self._mean), self._mean)
        self._size = np.where(told, self._size + MEMORY * (np.abs(errors) - self._size), self._size)
        signal = np.abs(self._mean) / np.maximum(self._size, 1e-12)
        more: Floats = self._low + (self._high - self._low) * np.minimum(signal, 1.0) ** 2
        return more
