"""The experiment on AdaServe's figures: the same requests for every policy, and ratios by hand."""

from dataclasses import replace
from statistics import fmean

import pytest

from experiments.adaserve import OURS, Config, Point, ratios, requests, worlds
from experiments.harness.experiment import HERE, load

FULL = load(HERE / "configs" / "adaserve.toml", "full", Config)


def test_requests_depend_on_the_point_alone():
    point = Point("rates", "llama", 4.0)
    assert requests(FULL, point, 1) == requests(FULL, point, 1) != requests(FULL, point, 2)
    assert requests(FULL, replace(point, figure="edge", latency_s=0.02), 1) == requests(FULL, point, 1)
    bursty = requests(FULL, replace(point, bursty=True), 1)
    assert len(bursty) == len(requests(FULL, point, 1))
    means = {name: fmean(one.at_s for one in bursty if one.slo.tier == name) for name in ("copilot", "chat", "summary")}
    assert list(means) == sorted(means, key=means.__getitem__)


def row(policy, rate, attainment, goodput, figure="rates"):
    key = {"figure": figure, "model": "llama", "requests_per_s": rate, "latency_ms": 0.0, "harder": 0.0}
    key |= {"urgent_share": None, "slo_scale": None, "selection_share": 0.0, "requests": 100}
    kept = {"attainment": attainment, "violations": 1.0 - attainment, "goodput_tokens_s": goodput}
    return key | kept | {"policy": policy}


ROWS = [  # two seeds of the higher rate
    *(row("fixed 4", 1.0, 0.8, 100.0), row("chunked prefill", 1.0, 0.6, 80.0), row(OURS, 1.0, 0.95, 150.0)),
    *(row("fixed 4", 2.0, 0.1, 10.0), row("chunked prefill", 2.0, 0.3, 60.0), row(OURS, 2.0, 0.85, 200.0)),
    *(row("fixed 4", 2.0, 0.1, 30.0), row("chunked prefill", 2.0, 0.5, 40.0), row(OURS, 2.0, 0.85, 300.0)),
]


def test_the_best_baseline_is_chosen_in_each_world_of_means_over_seeds():
    low, high = worlds(ROWS, "llama", "rates")
    assert ratios(low, OURS)["violations_ratio"] == pytest.approx(0.2 / 0.05)
    found = {"attainment_ratio": 0.85 / 0.4, "violations_ratio": 0.6 / 0.15, "goodput_ratio": 250.0 / 50.0}
    assert ratios(high, OURS) == pytest.approx(found)


def test_where_nothing_was_late_one_text_of_all_is_assumed():
    [world] = worlds([row("fixed 4", 1.0, 0.7, 100.0), row(OURS, 1.0, 1.0, 100.0)], "llama", "rates")
    assert ratios(world, OURS)["violations_ratio"] == pytest.approx(30.0)
