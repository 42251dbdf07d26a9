"""GoodSpeed's gradient scheduling: the exact integer optimum of Eq. (5).

The s-th token of client i is worth w_i U'(X_i) alpha_i^s, so the budget goes to the C best gains of all. They are
compared as logarithms, log w_i - fairness log X_i + s log alpha_i in float64, where nothing underflows; equal ones
take turns. A client whose gain is exactly 0 (alpha or weight 0) gets nothing, even where budget is left over.
With `cost`, a model of what a round's time is, the budget is spent only as far as it pays (`timed.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from goodspeed.errors import ConfigError
from goodspeed.policies import timed
from goodspeed.policies.base import ClientState, Floats, Ints, check_budget, max_lengths, register, within_budget
from goodspeed.policies.price import largest_terms
from goodspeed.policies.turns import Turns

MAX_FAIRNESS = 1000.0


@register("gradient")
class GradientPolicy:
    """Maximises the sum of w_i U'(X_i) times expected tokens, with U' = X^-fairness (1: log, 0: total goodput).

    With `cost` it is the sum per second that counts, and nothing is drafted where that does not pay.
    """

    def __init__(self, fairness: float = 1.0, cost: timed.Cost | None = None) -> None:
        self._fairness = check_fairness(fairness)
        self._turns = Turns()
        self._timed = timed.TimedAllocation(cost, self._turns) if cost is not None else None

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        caps = max_lengths(clients, budget)
        rows = [(client.acceptance_rate, client.goodput, client.weight) for client in clients]
        acceptance, goodput, weight = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        if self._timed is None:
            lengths = allocate_arrays(acceptance, goodput, weight, caps, budget, self._fairness, self._turns)
        else:
            _check_states(acceptance, goodput, weight)
            times = [(one.draft_s_per_token, one.round_trip_s, one.share, one.context_len) for one in clients]
            timing = timed.Timing(*np.array(times, dtype=np.float64).reshape(-1, 4).T)
            worth = weight * goodput**-self._fairness
            caps = np.where((acceptance > 0.0) & (weight > 0.0), within_budget(caps, budget), 0)
            lengths = self._timed.allocate(worth, acceptance, caps, timing, budget)
        result: list[int] = lengths.tolist()
        return result


def allocate_arrays(
    acceptance: Floats,
    goodput: Floats,
    weight: Floats,
    caps: Ints,
    budget: int,
    fairness: float = 1.0,
    turns: Turns | None = None,
) -> Ints:
    """All arrays [clients] -> draft lengths, int64 [clients]. `turns` carries the ties from one round to the next.

    Raises ConfigError for a value out of range, naming it.
    """
    check_budget(budget)
    _check_states(acceptance, goodput, weight)
    useful = (acceptance > 0.0) & (weight > 0.0)
    caps = np.where(useful, within_budget(caps, budget), 0)
    if caps.sum() <= budget:
        return caps
    level = np.log(np.where(useful, weight, 1.0)) - check_fairness(fairness) * np.log(goodput)
    slope = np.log(np.where(useful, acceptance, 1.0))
    above, tied = largest_terms(level, slope, caps, budget)
    return above + (turns or Turns()).share(tied, budget - int(above.sum()))


def check_fairness(fairness: float) -> float:
    if not isinstance(fairness, int | float) or not 0.0 <= fairness <= MAX_FAIRNESS:
        raise ConfigError(f"fairness is {fairness!r}; it must lie within 0 (total goodput) and {MAX_FAIRNESS:g}")
    return float(fairness)


def _check_states(acceptance: Floats, goodput: Floats, weight: Floats) -> None:
    _check("acceptance_rate", acceptance, (acceptance >= 0.0) & (acceptance <= 1.0), "within 0 and 1")
    _check("goodput", goodput, (goodput > 0.0) & (goodput < np.inf), "positive and finite")
    _check("weight", weight, (weight >= 0.0) & (weight < np.inf), "0 or more, and finite")


def _check(name: str, values: Floats, right: NDArray[np.bool_], wanted: str) -> None:
    if not right.all():
        client = int(np.argmin(right))
        raise ConfigError(f"{name} is {values[client]} for client {client}; it must be {wanted}")
