"""The experiment on SLOs-Serve's figures: who meets which requests; capacities and ratios by hand."""

from dataclasses import replace

import pytest

from experiments import slos_serve
from experiments.harness import experiment as harness
from experiments.simulation.open_loop.rivals import DISTSERVE, SARATHI, VLLM, VLLM_SPEC
from experiments.slos_serve import FEW_SCENARIO, OURS, POLICIES, Cell, Config, arrivals, facts, rivals, served

QUICK = harness.load(harness.HERE / "configs" / "slos_serve.toml", "quick", Config)
FULL = harness.load(harness.HERE / "configs" / "slos_serve.toml", "full", Config)


def row(policy, capacity, few=0.5, scenario="ChatBot", window=0):
    key = {"scenario": scenario, "policy": policy, "window": window}
    return key | {"capacity": capacity, "capacity_few": few, "promised": 0.9, "promised_attained": 0.96}


def by_hand():
    """The best of one GPU is vLLM (Spec) in ChatBot; in Coder, where nobody drafts, Sarathi, and in window 1 vLLM."""
    rows = []
    for window, ours in ((0, 6.0), (1, 24.0)):
        rows += [row(policy, 1.0, window=window) for policy in POLICIES if policy != OURS]
        rows += [row(VLLM, 2.0, window=window), row(SARATHI, 2.0, window=window), row(VLLM_SPEC, 2.5, window=window)]
        rows += [row(DISTSERVE, 3.0, window=window), row(OURS, ours, window=window)]
    for window, ours, sarathi in ((0, 9.0, 3.0), (1, 3.0, 1.0)):
        rows += [row(policy, 1.0, scenario="Coder", window=window) for policy in ("none", DISTSERVE)]
        rows += [row(OURS, ours, scenario="Coder", window=window), row(VLLM, 1.5, scenario="Coder", window=window)]
        rows += [row(SARATHI, sarathi, scenario="Coder", window=window)]
    return rows


LOADS = [row(OURS, 1.0) | {"num_promised": 50, "promised_late": 2, "promised_slow": 0}] * 2


def test_ratios_are_over_each_baseline_and_over_the_best_one_of_the_same_window():
    told = facts(by_hand(), LOADS)
    assert told["capacity"]["Coder"][OURS] == 6.0, "the mean of its windows"
    assert told["over"][VLLM]["ChatBot"] == pytest.approx((6.0, 3.0, 12.0))
    assert told["over"][VLLM]["Coder"] == pytest.approx((12.0**0.5, 2.0, 6.0))
    assert told["over"][DISTSERVE]["ChatBot"] == pytest.approx((4.0, 2.0, 8.0))
    assert set(told["over"][VLLM_SPEC]) == {"ChatBot"}, "nobody drafts in Coder"
    assert told["over"]["none"]["Coder"] == pytest.approx((27.0**0.5, 3.0, 9.0))
    assert told["over_best"]["ChatBot"] == pytest.approx((4.8, 2.4, 9.6))
    assert told["over_best"]["Coder"] == pytest.approx((6.0**0.5, 2.0, 3.0)), "of Sarathi, and then of vLLM"
    assert told["over_few"][VLLM]["ChatBot"] == pytest.approx((1.0, 1.0, 1.0))
    assert (told["num_promised"], told["broken_by_tens"], told["broken_late"]) == (100, 0, 4)


TINY = replace(QUICK, scenarios={"Coder": replace(QUICK.scenarios["Coder"], window_s=4.0)})


def tiny(policy):
    cell = Cell("Coder", policy)
    return served(TINY, cell, arrivals(TINY, cell, 3.0))


def test_all_policies_meet_the_same_requests():
    def asked(done):
        return sorted((text.kept.slo.ttft_s, text.num_tokens) for text in done.texts)

    cell = Cell("Coder", VLLM)
    theirs = [serve(arrivals(TINY, cell, num * 3.0)) for num, serve in rivals(TINY, cell).values()]
    ours = tiny(OURS)
    assert len(ours.texts) == 24, "those of the window"
    assert all(asked(done) == asked(ours) for done in theirs)


def test_a_capacity_is_the_highest_rate_that_held_and_the_stricter_one_is_of_a_scenarios_first_window(monkeypatch):
    """2 % are missed beyond 1/s, a tenth beyond 3/s."""

    def load(config, cell, variant, requests_per_s):
        return {"violations": 0.05 * (requests_per_s > 1.0) + (requests_per_s > 3.0), "rate": requests_per_s}

    monkeypatch.setattr(slos_serve, "load", load)
    row, loads = slos_serve.measure(FULL, Cell(FEW_SCENARIO, OURS))
    assert 3.0 / FULL.ratio <= row["capacity"] == row["rate"] <= 3.0
    assert 1.0 / FULL.ratio <= row["capacity_few"] <= 1.0
    assert {row["rate"], row["capacity_few"]} <= {load["rate"] for load in loads}
    for other in (Cell(FEW_SCENARIO, OURS, window=1), Cell("Coder", OURS)):
        assert slos_serve.measure(FULL, other)[0]["capacity_few"] == 0.0
