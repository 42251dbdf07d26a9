"""Smoothed acceptance rate (Eq. 3) and goodput (Eq. 4) of one client, and how even several are."""

import math
from collections.abc import Sequence

from goodspeed.errors import ConfigError

SMALLEST_RATE = 1e-6  # an acceptance rate stays within [SMALLEST_RATE, 1 - SMALLEST_RATE]
SMALLEST_GOODPUT = 1e-6  # a goodput stays positive: the utility's slope is computed at it
FULL_DRAFT = 2
"""Drafted tokens from which on a draft has full weight, if evidence is weighed. Measured (see the log): 1 (equal
weights) needs half the step for equally good estimates; 4 follows quick changes later."""

INITIAL_ACCEPTANCE = 0.7
"""Acceptance rate assumed before the first draft: optimistic, so that a new session is tried with a few drafted tokens
rather than none."""

ROUNDING = 1e-5  # a sum of float32 ratios may exceed its number of terms by about this share


def smoothed(known: float, value: float, step: float) -> float:
    """Returns the average `known` updated with one more value. 0 means no value yet: returns the value itself.

    step: the weight of the new value, between 0 and 1.
    """
    return known + (value - known) * (step if known else 1.0)


class AcceptanceEstimator:
    """Eq. (3): moves `value` by the share `eta` towards the mean agreement of each verified draft.

    With `worth`, evidence is weighed. `initial` then counts as `worth` drafted tokens. The estimate is the mean of all
    tokens so far while that gives steps larger than `eta`; later, a draft below FULL_DRAFT has a smaller step.
    """

    def __init__(self, eta: float, initial: float, worth: float | None = None) -> None:
        if worth is not None and not 0.0 < worth < math.inf:
            raise ConfigError(
                f"the initial acceptance rate is worth {worth} tokens; it must be more than 0, and finite"
            )
        self.worth = worth  # drafted tokens behind `value`; None: all drafts weigh the same
        self.eta = _share("eta", eta)
        if not 0.0 <= initial <= 1.0:
            raise ConfigError(f"the initial acceptance rate is {initial}; it must lie within 0 and 1")
        self.value = _inside(float(initial))

    def observe(self, agreement: float, num_drafted: int = 1) -> None:
        """Updates from a draft. agreement: sum over its positions of min(1, p/q), of that term's mean, or of matches.

        A draft without tokens does not change the estimate. Raises ValueError for an impossible sum.
        """
        if not (num_drafted >= 0 and 0.0 <= agreement <= num_drafted * (1.0 + ROUNDING)):
            raise ValueError(f"agreement {agreement} over {num_drafted} drafted positions is impossible")
        if num_drafted:
            step = self.eta
            if self.worth is not None:
                step = max(step * min(num_drafted / FULL_DRAFT, 1.0), num_drafted / (self.worth + num_drafted))
                self.worth += num_drafted
            self.value = _inside((1.0 - step) * self.value + step * (agreement / num_drafted))


class GoodputEstimator:
    """Eq. (4): moves `value` by the share `beta` towards the tokens delivered in a verify round."""

    def __init__(self, beta: float, initial: float) -> None:
        self.beta = _share("beta", beta)
        if not 0.0 < initial < math.inf:
            raise ConfigError(f"the initial goodput is {initial}; it must be positive and finite")
        self.value = max(float(initial), SMALLEST_GOODPUT)

    def observe(self, tokens: float, rounds: int = 1) -> None:
        """Updates from `tokens` delivered over the latest `rounds` verify rounds (1 is Eq. 4 itself).

        Several rounds at once are that many steps of Eq. (4) with the tokens spread evenly over them.
        Raises ValueError for a negative count of tokens or fewer than one round.
        """
        if not (rounds >= 1 and 0.0 <= tokens < math.inf):
            raise ValueError(f"{tokens} tokens over {rounds} rounds is impossible")
        keep = (1.0 - self.beta) ** rounds
        self.value = max(keep * self.value + (1.0 - keep) * (tokens / rounds), SMALLEST_GOODPUT)


def _share(name: str, value: float) -> float:
    if not 0.0 < value <= 1.0:
        raise ConfigError(f"{name} is {value}; a smoothing parameter must lie within (0, 1]")
    return float(value)


def _inside(rate: float) -> float:
    return min(max(rate, SMALLEST_RATE), 1.0 - SMALLEST_RATE)


def jain_index(values: Sequence[float]) -> float:
    """Returns (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything; 0 without values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0
