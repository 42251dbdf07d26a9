"""Theorem 1 in small: under `gradient`, long-term goodput comes to the optimum of the sum of log goodput."""

import numpy as np
import pytest

from experiments.simulation.arrays.optimum import geometric, optimum
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, expected_tokens
from goodspeed.fair.policies import ClientState, create

ALPHAS = np.array([0.35, 0.55, 0.7, 0.8, 0.9, 0.95])
BUDGET = 15


def best_goodput() -> np.ndarray:
    return optimum(geometric(ALPHAS, BUDGET), BUDGET).goodput


def test_expected_tokens_as_goodput_converge_to_the_optimum():
    policy, goodput, total = create("gradient"), np.ones(ALPHAS.size), np.zeros(ALPHAS.size)
    for step in range(3000):
        states = [ClientState(alpha, x) for alpha, x in zip(ALPHAS, goodput, strict=True)]
        delivered = expected_tokens(ALPHAS, np.array(policy.allocate(states, BUDGET)))
        goodput += 0.01 * (delivered - goodput)
        total += delivered * (step >= 1000)
    assert total / 2000 == pytest.approx(best_goodput(), rel=0.005)


def simulate(name: str, num_rounds: int, seed: int) -> np.ndarray:
    """Mean goodput under Algorithm 1 with everything estimated from tokens that pass with chance alpha."""
    random, policy = np.random.default_rng(seed), create(name)
    rates = [AcceptanceEstimator(eta=0.01, initial=0.7) for _ in ALPHAS]
    goodputs = [GoodputEstimator(beta=0.05, initial=2.0) for _ in ALPHAS]
    total = np.zeros(ALPHAS.size)
    for _ in range(num_rounds):
        states = [ClientState(rate.value, x.value) for rate, x in zip(rates, goodputs, strict=True)]
        for i, length in enumerate(policy.allocate(states, BUDGET)):
            passed = random.random(length) < ALPHAS[i]
            delivered = int(np.cumprod(passed).sum()) + 1
            rates[i].observe(float(passed.sum()), length)
            goodputs[i].observe(delivered)
            total[i] += delivered
    return total / num_rounds


@pytest.mark.thorough
def test_estimates_from_samples_come_near_the_optimum_and_beat_the_baselines():
    best = float(np.log(best_goodput()).sum())
    utility = {name: float(np.log(simulate(name, 4000, seed=1)).sum()) for name in ("gradient", "fixed", "random")}
    assert utility["gradient"] == pytest.approx(best, abs=0.05)
    assert utility["gradient"] > utility["fixed"] + 0.05
    assert utility["fixed"] > utility["random"]
