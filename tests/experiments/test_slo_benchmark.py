"""The benchmark `slo` without nodes: what is counted."""

from typing import Any

from experiments.benchmarks.nodes.workers import Served
from experiments.benchmarks.slo import LENGTHS, Comparison, measures, requests
from experiments.simulation.texts.target_texts import TargetText
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Sampling

TIERS = {"urgent": Objectives(0.5, 0.02, "urgent"), "patient": Objectives(1.5, 0.06, "patient")}
TEXTS = [TargetText("chat", Sampling(seed=seed), (seed, 1), tuple(range(LENGTHS[1]))) for seed in range(3)]


def served(tokens=(), outcome="attained", promised=None):
    return Served(list(tokens), 0, 0, 1.0, outcome=outcome, promised=promised)


def asked(number):
    return requests([0.0] * number, TEXTS, TIERS, 2, seed=1)


def test_what_is_counted():
    outcomes = [("attained", True), ("slow", True), ("late", False), ("attained", False)]
    done = [served([1] * 20, outcome, promised) for outcome, promised in outcomes]
    row = measures(list(zip(asked(4), done, strict=True)), seconds=2.0)
    assert row["promised"] == 0.5
    assert row["promised_attainment"] == row["best_effort_attainment"] == row["attainment"] == 0.5
    assert row["goodput_tokens_s"] == 20.0


def test_a_text_that_differs_is_found(monkeypatch):
    one, other = asked(2)
    answers = [[served(one.expected)], [served([*other.expected[:-1], 4000])]]
    monkeypatch.setattr("experiments.benchmarks.slo.serve_all", lambda workers, wanted: (1.0, answers))
    comparison = Comparison()
    nodes: list[Any] = [None, None]
    comparison.serve(nodes, [one, other])
    assert (comparison.num_texts, comparison.num_different) == (2, 1)
