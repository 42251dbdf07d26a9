"""GoodSpeed's gradient scheduling: the exact integer optimum of Eq. (5).

The s-th token of client i is worth w_i U'(X_i) alpha_i^s, so the budget goes to the C largest of these gains. Gains are
compared as logarithms in float64, log w_i - fairness log X_i + s log alpha_i, which cannot underflow; ties rotate. A
client whose gain is exactly 0 (alpha or weight 0) gets nothing, even if budget remains.
"""

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from goodspeed.fair.policies.base import (
    ClientState,
    Floats,
    Ints,
    check_budget,
    check_fairness,
    check_values,
    max_lengths,
    within_budget,
)
from goodspeed.fair.policies.price import largest_terms
from goodspeed.fair.policies.registry import register
from goodspeed.fair.policies.tie_breaking import TieBreaker

MOST_LEVEL = 500.0
"""Bound of the absolute logarithm of U'(X)."""


@register("gradient")
class GradientPolicy:
    """Maximises the sum of w_i U'(X_i) times expected tokens, with U' = X^-fairness (1: log, 0: total goodput)."""

    def __init__(self, fairness: float = 1.0) -> None:
        self.fairness = check_fairness(fairness)
        self._ties = TieBreaker()

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        caps = max_lengths(clients, budget)
        self._ties.follow(clients)
        rows = [(client.acceptance_rate, client.goodput, client.weight) for client in clients]
        acceptance, goodput, weight = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        lengths = allocate_arrays(acceptance, goodput, weight, caps, budget, self.fairness, self._ties)
        result: list[int] = lengths.tolist()
        return result


@register("throughput")
class ThroughputPolicy(GradientPolicy):
    """Maximises the sum of w_i times expected tokens, like adaptive verification inside one server.

    Clients with low acceptance rates get nothing while others can use the budget.
    """

    def __init__(self) -> None:
        super().__init__(fairness=0.0)


def allocate_arrays(
    acceptance: Floats,
    goodput: Floats,
    weight: Floats,
    caps: Ints,
    budget: int,
    fairness: float = 1.0,
    ties: TieBreaker | None = None,
) -> Ints:
    """Returns draft lengths, int64 [clients]; all arrays are [clients]. ties: carries its state from round to round.

    Raises ConfigError that names a value out of range.
    """
    check_budget(budget)
    _check_states(acceptance, goodput, weight)
    useful = (acceptance > 0.0) & (weight > 0.0)
    caps = np.where(useful, within_budget(caps, budget), 0)
    if caps.sum() <= budget:
        return caps
    level, slope = level_and_slope(acceptance, goodput, weight, useful, fairness)
    above, tied = largest_terms(level, slope, caps, budget)
    return above + (ties or TieBreaker()).share(tied, budget - int(above.sum()))


def level_and_slope(
    acceptance: Floats, goodput: Floats, weight: Floats, useful: NDArray[np.bool_], fairness: float
) -> tuple[Floats, Floats]:
    """Returns (level, slope), shaped as the arguments: the s-th token of a client gains exp(level + s slope)."""
    level = np.log(np.where(useful, weight, 1.0)) - check_fairness(fairness) * np.log(goodput)
    return level, np.log(np.where(useful, acceptance, 1.0))


def goodput_bounds(fairness: float) -> tuple[float, float]:
    """Returns the range of X in which U'(X) = X^-fairness is computed, so that the result is finite and above 0.

    Up to a fairness of 24 these bounds lie beyond 1e-9 and 1e9.
    """
    most = exp(MOST_LEVEL / max(fairness, 1.0))
    return 1.0 / most, most


def _check_states(acceptance: Floats, goodput: Floats, weight: Floats) -> None:
    check_values("acceptance_rate", acceptance, (acceptance >= 0.0) & (acceptance <= 1.0), "within 0 and 1")
    check_values("goodput", goodput, (goodput > 0.0) & (goodput < np.inf), "positive and finite")
    check_values("weight", weight, (weight >= 0.0) & (weight < np.inf), "0 or more, and finite")
