"""The estimators over many clients at once: the arithmetic of `goodspeed/fair/estimators.py`, bit for bit."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from goodspeed.fair.estimators import FULL_DRAFT, SMALLEST_GOODPUT, SMALLEST_RATE
from goodspeed.fair.policies.base import Floats


def observe_acceptance(
    value: Floats, eta: float, agreement: Floats, num_drafted: ArrayLike, worth: Floats | None = None
) -> Floats:
    """`AcceptanceEstimator.observe` for many clients: returns the new values; all shapes are [clients].

    The caller adds `num_drafted` to `worth` afterwards.
    """
    drafted = np.asarray(num_drafted)
    step: Any = eta
    if worth is not None:
        step = np.maximum(eta * np.minimum(drafted / FULL_DRAFT, 1.0), drafted / (worth + drafted))
    moved = (1.0 - step) * value + step * (agreement / np.maximum(drafted, 1))
    kept: Floats = np.where(drafted > 0, np.clip(moved, SMALLEST_RATE, 1.0 - SMALLEST_RATE), value)
    return kept


def observe_goodput(value: Floats, beta: float, tokens: ArrayLike) -> Floats:
    """`GoodputEstimator.observe` of one round for many clients: returns the new values, shape [clients]."""
    keep = 1.0 - beta
    moved: Floats = keep * value + (1.0 - keep) * np.asarray(tokens)
    return np.maximum(moved, SMALLEST_GOODPUT)
