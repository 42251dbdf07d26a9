"""The experiment on fleets: one replica meets the requests of slos_serve; ratios by hand."""

from dataclasses import replace

import pytest

from experiments.fleet import Config, arrivals, facts, linear_error
from experiments.harness import experiment as harness
from experiments.slos_serve import Cell as AlonesCell
from experiments.slos_serve import Config as Alone
from experiments.slos_serve import arrivals as alone

FULL = harness.load(harness.HERE / "configs" / "fleet.toml", "full", Config)


def test_one_replica_meets_the_requests_of_slos_serve():
    other = harness.load(harness.HERE / "configs" / "slos_serve.toml", "full", Alone)
    study = replace(FULL.studies["coder"], window_s=other.scenarios["Coder"].window_s)
    for windows in ("own", "same"):
        of_fleet = arrivals(FULL, replace(study, windows=windows), 1, 0, 3.0)
        assert of_fleet == alone(other, AlonesCell("Coder", "dp"), 3.0)


def test_each_run_has_requests_of_its_own():
    first, second = (arrivals(FULL, FULL.studies["replicas"], 1, number, 3.0) for number in (0, 1))
    assert [one.prompt_tokens for one in first[:9]] != [one.prompt_tokens for one in second[:9]]


def row(study, replicas, capacity, routing="fits"):
    return {"study": study, "replicas": replicas, "routing": routing, "capacity": capacity}


def test_ratios_and_errors_by_hand():
    rows = [row("replicas", 1, 5.0), row("replicas", 2, 9.0), row("replicas", 4, 21.0), row("coder", 1, 2.0)]
    rows += [row("coder", 4, 10.0), row("coder", 4, 8.0, "none"), row("homes", 4, 9.0, "ring")]
    told = facts(rows)
    assert told["replicas"] == {1: 5.0, 2: 9.0, 4: 21.0}
    assert told["linear_error"] == pytest.approx(0.1)
    assert told["coder"] == {"fits": {4: 5.0}, "none": {4: 4.0}}
    assert told["policies"] == {"homes": {"ring": {4: 9.0}}}
    assert linear_error({1: 1.0, 2: 2.5}) == pytest.approx(0.25)
