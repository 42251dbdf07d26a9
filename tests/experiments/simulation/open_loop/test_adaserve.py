"""The experiment on AdaServe's figures: the same requests for every policy, and ratios by hand."""

from dataclasses import replace
from statistics import fmean

import pytest

from experiments.adaserve import Config, Point, draw, experiment, kinds_of, requests
from experiments.harness.experiment import HERE, load
from experiments.slo.adaserve_claims import ratios
from experiments.slo.service_policies import BASELINES, OURS, POLICIES

QUICK = load(HERE / "configs" / "adaserve.toml", "quick", Config)
FULL = load(HERE / "configs" / "adaserve.toml", "full", Config)


def test_the_urgent_kind_asks_for_its_share_and_for_a_multiple_of_the_baseline():
    urgent, chat, summary = kinds_of(FULL, Point("scale", "llama", 4.0, slo_scale=0.5))
    assert urgent.tpot_s == pytest.approx(0.015)
    assert (chat.tpot_s, summary.tpot_s) == (0.05, 0.15)
    urgent, chat, summary = kinds_of(FULL, Point("urgent", "qwen", 4.0, urgent_share=0.9))
    assert urgent.tpot_s == pytest.approx(1.2 * 0.028)
    assert (urgent.share, chat.share, summary.share) == pytest.approx((0.9, 0.05, 0.05))
    harder = kinds_of(FULL, Point("harder", "qwen", 4.0, harder=0.2))
    assert [kind.acceptance for kind in harder] == pytest.approx([0.6, 0.5, 0.4])


def test_requests_depend_on_the_point_alone():
    point = Point("rates", "llama", 4.0)
    assert requests(FULL, point) == requests(FULL, point)
    assert requests(FULL, replace(point, figure="edge", latency_s=0.02)) == requests(FULL, point)
    bursty = requests(FULL, replace(point, bursty=True))
    assert len(bursty) == len(requests(FULL, point))
    means = {name: fmean(one.at_s for one in bursty if one.slo.tier == name) for name in ("copilot", "chat", "summary")}
    assert list(means) == sorted(means, key=means.__getitem__)


def row(policy, rate, violations, goodput, harder=0.0):
    key = {"figure": "rates", "model": "llama", "requests_per_s": rate, "latency_ms": 0.0, "harder": harder}
    key |= {"urgent_share": None, "slo_scale": None}
    return key | {"policy": policy, "violations": violations, "goodput_tokens_s": goodput, "requests": 100}


def test_the_best_baseline_is_chosen_in_each_world():
    rows = [
        *(row("fixed 4", 1.0, 0.2, 100.0), row("chunked prefill", 1.0, 0.4, 80.0), row(OURS, 1.0, 0.05, 150.0)),
        *(row("fixed 4", 2.0, 0.9, 10.0), row("chunked prefill", 2.0, 0.6, 60.0), row(OURS, 2.0, 0.15, 250.0)),
    ]
    found = ratios(rows, "llama", "rates", OURS)
    assert found == pytest.approx({"violations_ratio": 0.4 / 0.1, "goodput_ratio": 200.0 / 80.0})


def test_where_nothing_was_late_one_text_of_all_is_assumed():
    rows = [row("fixed 4", 1.0, 0.3, 100.0), row(OURS, 1.0, 0.0, 100.0)]
    assert ratios(rows, "llama", "rates", OURS)["violations_ratio"] == pytest.approx(30.0)


@pytest.mark.thorough
def test_every_policy_meets_the_rates_and_is_told():
    tiny = replace(
        QUICK, duration_s=3.0, models={"llama": QUICK.models["llama"]}, urgent_shares=[], slo_scales=[], harder=[]
    )
    outcome = experiment(tiny)
    assert [run["policy"] for run in outcome.facts["runs"]] == list(POLICIES)
    assert {"model", "requests_per_s", "policy", "attainment", "violations", "goodput_tokens_s"} == set(
        outcome.facts["runs"][0]
    )
    assert {ratio: set(found) for ratio, found in outcome.facts["headline"].items()} == {
        "violations_ratio": {"llama"},
        "goodput_ratio": {"llama"},
    }
    assert len({one["requests"] for one in outcome.rows if one["figure"] == "rates"}) == 1
    for one in outcome.rows:
        assert one["drafted"] == 0.0 or POLICIES[one["policy"]].get("max_draft") != 0
    assert OURS not in BASELINES
    assert len(draw(tiny, outcome).axes) == 1
