"""The experiment on changes of acceptance: when a level counts as reached, and how step sizes follow errors."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.domain_shift import STAYS, Config, Variant, course, fallen_for_want_of_budget, recovery
from experiments.harness.experiment import HERE, load
from experiments.simulation.arrays.steps import LessWithVariance, MoreWithChange

QUICK = load(HERE / "configs" / "domain_shift.toml", "quick", Config)
SMALL = replace(QUICK, num_seeds=40, rounds_each=80, fallen_rounds=40)


def test_a_level_counts_when_it_is_kept():
    level = np.concatenate([np.zeros(3), np.ones(2), np.zeros(4), np.ones(STAYS + 5)])
    assert recovery(level, 1.0) == 9
    assert recovery(level[:-6], 1.0) is None


def test_larger_steps_recover_sooner_and_err_more():
    slow, quick = (course(SMALL, Variant("", eta=eta)) for eta in (0.02, 0.2))
    after = slice(SMALL.rounds_each + 10, SMALL.rounds_each + 30)
    assert quick.errors[after].mean() < slow.errors[after].mean()
    assert quick.utility[after].mean() > slow.utility[after].mean()
    assert quick.errors[70:80].mean() > slow.errors[70:80].mean()


def test_a_client_without_budget_is_believed_again_through_probes():
    soon, late = (fallen_for_want_of_budget(SMALL, Variant("", eta=eta)) for eta in (0.4, 0.05))
    assert soon < late <= SMALL.fallen_rounds


def test_less_eta_by_hand():
    rule = LessWithVariance(0.2, threshold=0.05)
    drafted = np.array([[4, 4, 0]])
    eta = rule.eta(np.array([[0.1, 1.0, 1.0]]), drafted)
    # mean squares: 0.05 + 0.1 (0.01 - 0.05), 0.05 + 0.1 (1 - 0.05), and as it was
    assert eta == pytest.approx(np.array([[0.2, 0.2 * 0.05 / 0.145, 0.2]]))


def test_more_eta_by_hand():
    rule = MoreWithChange(0.05, 0.45)
    drafted = np.array([[4, 4, 0]])
    rule.eta(np.array([[0.5, 0.5, 0.5]]), drafted)
    eta = rule.eta(np.array([[0.5, -0.5, 0.5]]), drafted)
    signal = (0.1 * -0.5 + 0.9 * 0.05) / (0.1 * 0.5 + 0.9 * 0.05)
    assert eta == pytest.approx(np.array([[0.45, 0.05 + 0.4 * signal**2, 0.05]]))
