"""The experiment on AdaSpec's figures: the same requests for every policy, and speed by hand."""

from dataclasses import replace

import pytest

from experiments.adaspec import (
    POLICIES,
    WITHOUT,
    Config,
    draw,
    experiment,
    requests,
    served,
)
from experiments.harness.experiment import HERE, load

QUICK = load(HERE / "configs" / "adaspec.toml", "quick", Config)
TINY = replace(QUICK, duration_s=3.0)


def test_all_of_a_services_requests_ask_for_the_same_level():
    plain, level = requests(QUICK, "trace 1", None), requests(QUICK, "trace 1", 0.01)
    assert [one.at_s for one in plain] == [one.at_s for one in level]
    assert [one.acceptance for one in plain] == [one.acceptance for one in level]
    assert {one.slo for one in plain} == {None}
    assert {one.slo.tpot_s for one in level} == {0.01}


def test_fixed_lengths_are_fixed():
    by_policy = {policy: served(TINY, "7B", "trace 1", policy) for policy in ("SD 3", WITHOUT)}
    assert by_policy["SD 3"].drafted == pytest.approx(3.0, abs=0.3)  # less at the texts' ends
    assert by_policy[WITHOUT].drafted == 0.0


@pytest.mark.thorough
def test_every_policy_is_told_for_every_service_and_level():
    outcome = experiment(TINY)
    assert [(one["traffic"], one["policy"]) for one in outcome.rows] == [
        (name, policy) for name in (*TINY.traffic, "batch 4") for policy in POLICIES
    ]
    assert all(one["speedup"] == 1.0 for one in outcome.rows if one["policy"] == WITHOUT)
    assert [one["policy"] for one in outcome.curves if "policy" in one] == list(POLICIES)
    assert len(draw(TINY, outcome).axes) == 1 + 3  # speeds; draft models


def test_what_confidence_tells_is_told_by_draft_model_temperature_and_domain():
    alone = replace(QUICK, machines=[], temperatures=[1.0])
    outcome = experiment(alone)
    known = outcome.facts["calibration"]
    assert list(known) == ["smollm2-first-24", "smollm2-q4_0", "smollm2-draft"]
    for temperatures in known.values():
        assert list(temperatures) == ["1"]
        for domains in temperatures.values():
            assert len(domains) == 8
            assert all(one["after"] < one["before"] and one["num"] > 1000 for one in domains.values())
    assert len(outcome.findings) == 3
