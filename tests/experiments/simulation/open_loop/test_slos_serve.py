"""The experiment on SLOs-Serve's figures: who meets which requests, capacities and ratios by hand, what it tells."""

from dataclasses import replace

import pytest

from experiments.harness import experiment as harness
from experiments.simulation.open_loop.crowd import NUM_NEW, NUM_RUNNING, crowd
from experiments.slo.admission_policies import ABLATIONS, BASELINES, OURS, POLICIES
from experiments.slo.slos_serve_claims import ALLOWED, FEW, facts, findings, geometric_mean
from experiments.slo.slos_serve_worlds import A100, Cell, Config, arrivals, load, served
from experiments.slos_serve import cells, draw, experiment

QUICK = harness.load(harness.HERE / "configs" / "slos_serve.toml", "quick", Config)
FULL = harness.load(harness.HERE / "configs" / "slos_serve.toml", "full", Config)


def test_service_levels_are_multiples_of_a_lone_prompts_time():
    for name, slowdown, tpot_s in (("ChatBot", 5.0, 0.1), ("Coder", 5.0, 0.05), ("Summarizer", 3.0, 0.1)):
        one = arrivals(FULL, name, 3.0)[7]
        assert one.slo.ttft_s == pytest.approx(slowdown * A100.round_s(one.prompt_tokens, 1, 0))
        assert one.slo.tpot_s == tpot_s
    assert {one.slo.tier for one in arrivals(FULL, "Mixed", 3.0)} == {"chat", "code", "summary"}


def test_a_scenarios_texts_fit_into_the_pool():
    for name in FULL.scenarios:
        coming = arrivals(FULL, name, 5.0)
        assert max(one.prompt_tokens + one.output_tokens for one in coming) < FULL.pool_tokens / 4
        assert 0.0 <= coming[0].at_s <= coming[-1].at_s < len(coming) / 5.0


def test_a_rate_has_all_of_the_windows_requests_in_more_or_less_time():
    few, many = (arrivals(FULL, "Coder", rate) for rate in (1.0, 4.0))
    assert len(few) == len(many)
    assert [one.at_s for one in few] == pytest.approx([4.0 * one.at_s for one in many])
    assert [one.prompt_tokens for one in few] == [one.prompt_tokens for one in many]


def row(policy, capacity, few=0.5, latency_ms=0.0, scenario="ChatBot"):
    key = {"scenario": scenario, "policy": policy, "latency_ms": latency_ms}
    return key | {"capacity": capacity, "capacity_few": few, "promised": 0.9, "promised_attained": 0.96}


def by_hand():
    """The best of both baselines is chunked prefill with four drafted tokens; in Coder it is prefill first."""
    theirs = dict.fromkeys(BASELINES, 1.0)
    chat = theirs | {"prefill first, fixed 2": 2.0, "chunked prefill, fixed 4": 3.0} | dict.fromkeys(ABLATIONS, 4.0)
    code = theirs | {"prefill first": 2.0} | dict.fromkeys(ABLATIONS, 2.0)
    rows = [row(policy, capacity) for policy, capacity in (chat | {OURS: 6.0}).items()]
    rows += [row(policy, capacity, scenario="Coder") for policy, capacity in (code | {OURS: 9.0}).items()]
    return [*rows, row(OURS, 0.1, latency_ms=50.0)]


def test_ratios_are_over_the_better_baseline_with_its_best_length():
    told = facts(by_hand())
    assert told["capacity"]["ChatBot"][OURS] == 6.0
    assert told["ratios"] == {"ChatBot": pytest.approx(2.0), "Coder": pytest.approx(4.5)}
    assert told["geometric_mean"] == pytest.approx(3.0)
    assert told["over"]["prefill first"] == {"ChatBot": pytest.approx(3.0), "Coder": pytest.approx(4.5)}
    assert told["over"]["chunked prefill"] == {"ChatBot": pytest.approx(2.0), "Coder": pytest.approx(9.0)}
    assert told["without"]["none"] == {"ChatBot": pytest.approx(1.5), "Coder": pytest.approx(4.5)}
    assert [one["latency_ms"] for one in told["distances"]] == [50.0]
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_what_is_wanted_is_judged():
    told = facts(by_hand()) | {"scheduler_ms": {"p50": 1.0, "p99": 2.5, "crowds": 3}}
    judged = {one.what: one.reached for one in findings(told) if one.reached is not None}
    assert judged == {
        "capacity over the better baseline, geometric mean": True,
        "ChatBot: promised and kept, of those promised": True,
        "Coder: promised and kept, of those promised": True,
        "scheduling of 10 new beside 200, p99 in ms": False,
    }


def test_where_nothing_kept_its_level_there_is_a_ratio_all_the_same():
    rows = [one | {"capacity": 0.0} if one["policy"] != OURS else one for one in by_hand()]
    assert facts(rows)["ratios"]["ChatBot"] == pytest.approx(600.0)


def tiny(policy):
    return served(replace(QUICK, window_s=4.0), Cell("Coder", policy), 3.0)


@pytest.mark.thorough
def test_all_policies_meet_the_same_requests():
    asked = {
        policy: sorted((text.kept.slo.ttft_s, text.num_tokens) for text in tiny(policy).texts) for policy in POLICIES
    }
    assert len(asked[OURS]) == 24, "those of the window"
    assert all(own == asked[OURS] for own in asked.values())


@pytest.mark.thorough
def test_only_those_who_may_promise_do_and_only_those_who_may_draft_do():
    done = {policy: tiny(policy) for policy in (OURS, "edf", "none", "dp, no drafts", "chunked prefill, fixed 2")}
    assert [bool(one.promised) for one in done.values()] == [True, True, False, True, False]
    assert [one.num_drafted > 0 for one in done.values()] == [True, True, True, False, True]


def test_a_load_tells_what_became_of_promises():
    told = load(replace(QUICK, window_s=4.0), Cell("Coder", OURS), 6.0)
    kept = told["promised"] * told["promised_attained"] + (1.0 - told["promised"]) * (told["others_attained"] or 0.0)
    assert 1.0 - told["violations"] == pytest.approx(kept)
    assert told["late"] + told["slow"] == pytest.approx(told["violations"])
    assert told["requests_per_s"] == 6.0


@pytest.mark.thorough
def test_a_crowd_is_decided_on_at_once_beside_those_who_run():
    done = crowd(A100, 2, 1)
    sizes = [(one.num_new, one.num_promised >= NUM_RUNNING) for one in done.scheduling if one.num_new]
    assert sizes[-2:] == [(NUM_NEW, True)] * 2
    assert all(one.seconds > 0.0 for one in done.scheduling)


@pytest.mark.thorough
def test_what_is_told_of_a_tiny_run():
    scenarios = {"Coder": QUICK.scenarios["Coder"]}
    config = replace(QUICK, window_s=2.0, ratio=2.0, scenarios=scenarios, far_policies=[OURS], crowds=2)
    outcome = experiment(config)
    assert [(one["policy"], one["latency_ms"]) for one in outcome.rows] == [
        *((name, 0.0) for name in POLICIES),
        (OURS, 50.0),
    ]
    assert len(list(cells(config))) == len(outcome.rows)
    assert set(outcome.facts["capacity"]["Coder"]) == set(POLICIES)
    assert set(outcome.facts["ratios"]) == {"Coder"}
    assert {"geometric_mean", "scheduler_ms", "promised", "promised_attained", "distances"} <= set(outcome.facts)
    assert {"p50", "p99"} <= set(outcome.facts["scheduler_ms"])
    for one in outcome.rows:
        own = [
            load
            for load in outcome.curves
            if (load["policy"], load["latency_ms"]) == (one["policy"], one["latency_ms"])
        ]
        within = {
            allowed: max([load["requests_per_s"] for load in own if load["violations"] <= allowed], default=0.0)
            for allowed in (ALLOWED, FEW)
        }
        assert one["capacity_few"] <= one["capacity"] <= within[ALLOWED]
    assert len(draw(config, outcome).axes) == 1
