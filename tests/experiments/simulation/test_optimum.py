"""x* by hand, then against every mixture of decisions."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.simulation.arrays.optimum import geometric, optimum

CURVE = (0.95, 0.6, 0.55, 0.1, 0.05)  # as no alpha would have it


def decisions(curves, budget):
    """mu of every decision [decisions, clients]."""
    tokens = np.concatenate([np.ones((len(curves), 1)), 1 + np.cumsum(curves, axis=1)], axis=1)
    every = itertools.product(range(min(budget, curves.shape[1]) + 1), repeat=len(curves))
    return np.array([[tokens[i, k] for i, k in enumerate(chosen)] for chosen in every if sum(chosen) <= budget])


def test_two_equal_clients_share_an_odd_token():
    best = optimum([(0.5, 0.25), (0.5, 0.25)], 1)
    assert best.goodput == pytest.approx([1.25, 1.25], abs=1e-4)
    assert best.lengths == pytest.approx([0.5, 0.5], abs=1e-4)
    assert best.utility == pytest.approx(2 * np.log(1.25))


@pytest.mark.parametrize("seed", range(8))
def test_no_mixture_of_decisions_is_better(seed):
    """x* lies among the mixtures, and no decision lies beyond the tangent there (so, by concavity, no mixture does)."""
    random = np.random.default_rng(seed)
    curves = np.vstack([geometric(random.uniform(0.1, 0.95, 3), 5), CURVE])
    budget = int(random.integers(3, 12))
    best = optimum(curves, budget)
    every = decisions(curves, budget)
    slope = 1.0 / best.goodput
    assert (every @ slope).max() <= slope @ best.goodput + 1e-5
    mixture = linprog(
        np.zeros(len(every)),
        A_ub=-every.T,
        b_ub=-(best.goodput - 1e-6),
        A_eq=np.ones((1, len(every))),
        b_eq=[1.0],
        method="highs",
    )
    assert mixture.status == 0, mixture.message
    assert best.utility == pytest.approx(np.log(best.goodput).sum())
    assert best.lengths.sum() == pytest.approx(budget, abs=1e-5)
