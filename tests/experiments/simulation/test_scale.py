"""The experiment on scale: what it counts and compares."""

from dataclasses import replace

import pytest

from experiments.harness.experiment import HERE, load
from experiments.scale import Config, arrays_speed, fairness, machines_speed

SMALL = replace(
    load(HERE / "configs" / "scale.toml", "quick", Config), sizes=[(8, 60)], state_machines=(5, 6), arrays=[(50, 4)]
)


def test_client_rounds_are_counted():
    for measured, num_client_rounds in ((machines_speed(SMALL), 5 * 6), (arrays_speed(SMALL, 50, 4), 50 * 4)):
        assert measured["client_rounds_per_s"] * measured["seconds"] == pytest.approx(num_client_rounds)


def test_fairness_of_equal_clients_is_whole():
    same = replace(SMALL, alphas=(0.7, 0.7), policies=["fixed"])
    row = fairness(same, 8, 400, "fixed")
    assert row["jain"] == pytest.approx(1.0, abs=0.01)
    expected = 1 + 0.7 + 0.7**2  # two tokens each; the first round is the prompts'
    assert row["goodput"] == pytest.approx(expected, rel=0.05)
