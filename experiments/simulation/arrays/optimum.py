"""x* of problem (1): the long-term goodput that no scheduler can better, by a concave program.

Who drafts k tokens gets mu(k) = 1 + p_1 + ... + p_k tokens in the mean, p being its survival curve. What mixtures of
decisions over time can reach is their convex hull; since curves never rise, that is mu interpolated linearly between
whole lengths, with lengths that sum to C at most.
"""

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats, check_budget

NOTHING = 1e-9  # a token that is accepted more rarely is left out: the solver is better off without
NEAR = 1e-5
"""The utility found may lack so much, absolutely and of itself. By concavity it lacks no more than what the best single
decision is worth beyond it at its own slope, whatever the solver says."""


class NoOptimum(RuntimeError):
    """The solver did not find it."""


@dataclass(frozen=True)
class Optimum:
    """The optimum in the long run; arrays [clients]."""

    goodput: Floats  # x*, tokens a round
    lengths: Floats  # mean draft lengths
    utility: float


def geometric(alphas: ArrayLike, length: int) -> Floats:
    """Survival curves [clients, length] of independent acceptance. ConfigError for a rate beyond 0 and 1."""
    rates = np.array(alphas, dtype=np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise ConfigError(f"rates of agreement lie within 0 and 1, one for each client; these are {alphas!r}")
    curves: Floats = rates[:, None] ** np.arange(1, length + 1)
    return curves


def optimum(survival: ArrayLike, budget: int) -> Optimum:
    """survival: [clients, lengths], never rising; beyond its end nothing is accepted. ConfigError for a bad budget."""
    check_budget(budget)
    curves = np.array(survival, dtype=np.float64)
    allowed = (np.arange(curves.shape[1]) < budget) & (curves > NOTHING)
    taken = cp.Variable(curves.shape, nonneg=True)  # share of rounds in which the s-th token is drafted
    utility = cp.sum(cp.log(1.0 + cp.sum(cp.multiply(curves, taken), axis=1)))
    problem = cp.Problem(cp.Maximize(utility), [taken <= allowed.astype(np.float64), cp.sum(taken) <= budget])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how far it is from the best is found out below
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        except cp.SolverError as error:
            raise NoOptimum(f"no optimum found: {error}") from error
    if taken.value is None:
        raise NoOptimum(f"no optimum found: {problem.status}")
    shares = np.clip(taken.value, 0.0, allowed)
    shares *= min(1.0, budget / max(shares.sum(), NOTHING))
    goodput = 1.0 + (curves * shares).sum(axis=1)
    best = Optimum(goodput, shares.sum(axis=1), float(utility_of(goodput)))
    worth = np.where(allowed, curves / goodput[:, None], 0.0)
    missing = float((worth * _best_decision(worth, budget)).sum() - ((goodput - 1.0) / goodput).sum())
    if missing > NEAR * max(1.0, abs(best.utility)):
        raise NoOptimum(f"the solver's best may lack {missing:.2g} of {best.utility:.6g}")
    return best


def utility_of(goodput: ArrayLike) -> Floats:
    """Sum of log goodput over clients (the last axis)."""
    return np.asarray(np.log(np.asarray(goodput, dtype=np.float64)).sum(axis=-1))


def _best_decision(worth: Floats, budget: int) -> Floats:
    """Shares [clients, lengths] of the tokens that are worth most, equal ones alike; what is worth nothing is left."""
    if np.count_nonzero(worth) <= budget:
        return (worth > 0.0).astype(np.float64)
    price = np.sort(worth, axis=None)[-budget] if budget else np.inf
    above, tied = worth > price, worth == price
    shares: Floats = above + (budget - above.sum()) / max(tied.sum(), 1) * tied
    return shares
