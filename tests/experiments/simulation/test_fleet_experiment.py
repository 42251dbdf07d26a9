"""The experiment on fleets: which requests come to whom, capacities and ratios by hand, and what it tells."""

from dataclasses import replace

import pytest

from experiments.harness import experiment as harness
from experiments.simulation.open_loop.traffic import window
from experiments.slo.fleet_claims import facts, linear_error
from experiments.slo.fleet_regions import million
from experiments.slo.fleet_worlds import Cell, Config, Region, arrivals, load
from experiments.slo.slos_serve_worlds import Cell as AlonesCell
from experiments.slo.slos_serve_worlds import Config as Alone
from experiments.slo.slos_serve_worlds import arrivals as alone
from goodspeed.fleet.replicas import MAX_REPLICAS

QUICK = harness.load(harness.HERE / "configs" / "fleet.toml", "quick", Config)
FULL = harness.load(harness.HERE / "configs" / "fleet.toml", "full", Config)


def test_one_replica_meets_the_requests_of_slos_serve():
    other = harness.load(harness.HERE / "configs" / "slos_serve.toml", "full", Alone)
    study = replace(FULL.studies["coder"], window_s=other.scenarios["Coder"].window_s)
    for windows in ("own", "same"):
        assert arrivals(FULL, replace(study, windows=windows), 1, 0, 3.0) == alone(
            other, AlonesCell("Coder", "dp"), 3.0
        )


def test_replicas_have_windows_of_their_own_or_all_fleets_the_same():
    own, same = FULL.studies["replicas"], FULL.studies["chatbot"]
    counts = [len(window("azure_llm_2023_conv", 900 + 16 * place, 16)) for place in range(6)]
    four = arrivals(FULL, own, 4, 0, 40.0)
    assert len(four) == sum(counts[:4])
    assert four[-1].at_s <= len(four) / 40.0
    assert len(arrivals(FULL, own, 2, 2, 40.0)) == sum(counts[4:6])
    few, many = (arrivals(FULL, same, number, 0, 5.0 * number) for number in (1, 4))
    assert [one.at_s for one in few] == pytest.approx([4.0 * one.at_s for one in many])


def test_a_load_tells_what_became_of_requests():
    config = replace(QUICK, studies={"s": replace(QUICK.studies["replicas"], window_s=4.0, num_windows=2)})
    told = load(config, Cell("s", 2, "fits"), 20.0)
    assert (told["replicas"], told["requests_per_s"]) == (2, 40.0)
    assert told["requests"] == len(arrivals(config, config.studies["s"], 2, 0, 40.0))
    assert 0.0 < told["sent_on"] <= told["hops"] <= 3 * told["sent_on"]
    assert 0.0 < 1.0 - told["violations"] <= 1.0
    assert load(config, Cell("s", 2, "none"), 20.0)["hops"] == 0.0


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


def test_a_million_by_hand():
    """100,000 nodes, a request in 10 s each: 10,000 requests/s; 8 a replica, of which 6.4 are used: 1,563 replicas."""
    told = million(Region(100_000, 4, 0.1, 0.2, 1.0, 10.0), 8.0, 0.05)
    assert (told["replicas"], told["replicas_per_region"]) == (1563, 391)
    assert (told["fleets_per_region"], told["replicas_per_fleet"]) == (7, 56)
    assert told["redirects_per_s"] == pytest.approx(500.0)
    entry = told["table_bytes"] / MAX_REPLICAS
    assert told["fleet"]["replica_bytes_per_s"] == pytest.approx(told["report_bytes"] + 56 * entry)
    assert told["flat"]["keeper_bytes_per_s"] == pytest.approx(1563 * (told["report_bytes"] + 1563 * entry))
    assert told["fleet"]["draft_node_bytes_per_s"] == pytest.approx(5.6 * told["told_bytes"] / MAX_REPLICAS)
