"""The policies over many worlds side by side: one row for each, by the array forms that lie beside the policies.

A policy without an array form is asked for each row.

Each row has turns, or a random stream, of its own, so a world is the same alone and among others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from goodspeed.fair import policies
from goodspeed.fair.policies import ClientState, Policy, fixed, gradient, random
from goodspeed.fair.policies.base import Floats, Ints, check_fairness
from goodspeed.fair.policies.tie_breaking import TieBreaker


class RowPolicy(Protocol):
    """A policy for rows."""

    def allocate(self, acceptance: Floats, goodput: Floats, weight: Floats, caps: Ints, budgets: Ints) -> Ints:
        """Draft lengths. All [rows, clients], budgets [rows]."""
        ...


class Gradient:
    """`gradient`, and with `fairness` 0 `throughput`."""

    def __init__(self, num_rows: int, fairness: float = 1.0) -> None:
        self._fairness = check_fairness(fairness)
        self._ties = [TieBreaker() for _ in range(num_rows)]

    def allocate(self, acceptance: Floats, goodput: Floats, weight: Floats, caps: Ints, budgets: Ints) -> Ints:
        """`gradient.allocate_arrays` for many small problems at once; checks no values."""
        useful = (acceptance > 0.0) & (weight > 0.0)
        caps = np.where(useful, np.minimum(caps, budgets[:, None]), 0)
        scarce = caps.sum(axis=1) > budgets
        if not scarce.any():
            return caps
        level, slope = gradient.level_and_slope(acceptance, goodput, weight, useful, self._fairness)
        nth = np.arange(1, int(caps.max()) + 1)
        terms = np.where(nth <= caps[:, :, None], level[:, :, None] + nth * slope[:, :, None], -np.inf)
        flat = terms.reshape(len(terms), -1)  # [rows, clients x lengths]
        last = np.clip(flat.shape[1] - budgets, 0, flat.shape[1] - 1)
        prices = np.partition(flat, np.unique(last), axis=1)[np.arange(len(flat)), last]
        lengths, tied = ((terms > prices[:, None, None]).sum(axis=2), (terms == prices[:, None, None]).sum(axis=2))
        left = budgets - lengths.sum(axis=1)
        for row in np.flatnonzero(scarce & (tied.sum(axis=1) > left)).tolist():
            tied[row] = self._ties[row].share(tied[row], int(left[row]))
        return np.where(scarce[:, None], lengths + tied, caps)


class ByCaps:
    """A policy that looks at caps and budgets alone, one row after the other."""

    def __init__(self, allocate_arrays: Callable[..., Ints], states: Sequence[object]) -> None:
        """states: of each row, turns or a random stream."""
        self._allocate, self._states = allocate_arrays, states

    def allocate(self, acceptance: Floats, goodput: Floats, weight: Floats, caps: Ints, budgets: Ints) -> Ints:
        return np.stack([self._allocate(*row) for row in zip(caps, budgets.tolist(), self._states, strict=True)])


def _random(num_rows: int, seed: int = 0) -> ByCaps:
    """Row i draws as a policy with seed `seed` + i does."""
    return ByCaps(random.allocate_arrays, [np.random.default_rng(seed + row) for row in range(num_rows)])


class Listed:
    """A policy that has no array form: its list form is asked for one row after the other, which is slower."""

    def __init__(self, each: Sequence[Policy]) -> None:
        self._each = each

    def allocate(self, acceptance: Floats, goodput: Floats, weight: Floats, caps: Ints, budgets: Ints) -> Ints:
        rows = zip(acceptance, goodput, weight, caps, budgets.tolist(), self._each, strict=True)
        lengths = [policy.allocate(_states(a, x, w, c), budget) for a, x, w, c, budget, policy in rows]
        return np.array(lengths, dtype=np.int64)


def _states(acceptance: Floats, goodput: Floats, weight: Floats, caps: Ints) -> list[ClientState]:
    columns = zip(acceptance.tolist(), goodput.tolist(), weight.tolist(), caps.tolist(), strict=True)
    return [ClientState(*row, client_id=f"client-{number}") for number, row in enumerate(columns, 1)]


ARRAYS: Mapping[str, Callable[..., RowPolicy]] = {
    "gradient": Gradient,
    "fixed": lambda num_rows: ByCaps(fixed.allocate_arrays, [TieBreaker() for _ in range(num_rows)]),
    "random": _random,
    "throughput": lambda num_rows: Gradient(num_rows, fairness=0.0),
}
"""The policies with an array form."""


def create(name: str, num_rows: int, **options: Any) -> RowPolicy:
    """The policy of that name over rows, by its array form where it has one. UnknownPolicyError names the policies."""
    if name in ARRAYS:
        return ARRAYS[name](num_rows, **options)
    return Listed([policies.create(name, **options) for _ in range(num_rows)])
