"""The experiment on AdaSpec's figures: the same requests for every policy, and speed by hand."""

from dataclasses import replace

import pytest

from experiments.adaspec import (
    WITHOUT,
    Config,
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
