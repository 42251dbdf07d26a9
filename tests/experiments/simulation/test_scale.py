"""The experiment on scale: what it counts and compares."""

from dataclasses import replace

import pytest

from experiments.harness.experiment import HERE, load
from experiments.scale import Config, arrays_speed, fairness, machines_speed, scheduling, scheduling_findings

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


def test_both_forms_of_the_scheduler_are_timed_and_judged():
    times = [scheduling(SMALL, num_clients, 2) for num_clients in (8, 20_000)]
    assert [(each["num_clients"], each["budget"], each["cpu_us"] > 0) for each in times] == [
        (8, 16, True),
        (20_000, 40_000, True),
    ]
    found = scheduling_findings([times[0] | {"cpu_us": 101.0}, times[0] | {"cpu_us": 99.0}, times[1]])
    assert [(each.wanted, each.reached) for each in found] == [
        ("at most 100", False),
        ("at most 100", True),
        ("", None),
    ]
