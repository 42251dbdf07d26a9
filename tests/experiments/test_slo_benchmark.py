"""The benchmark `slo` without nodes: what is counted."""

from typing import Any

from experiments.benchmarks.nodes.workers import Served
from experiments.benchmarks.slo import KINDS, LENGTHS, Comparison, Plain, measures, requests
from experiments.simulation.texts.target_texts import TargetText
from goodspeed.slo.objectives import Objectives, parse_tiers
from goodspeed.wire.messages import Sampling

TIERS = {kind: Objectives(0.5, 0.02, kind) for kind in KINDS}
TEXTS = {
    kind: [TargetText(kind, Sampling(seed=seed), (seed, 1), tuple(range(LENGTHS[1]))) for seed in range(3)]
    for kind in KINDS
}


def served(tokens=(), outcome="attained", promised=None):
    return Served(list(tokens), 0, 0, 1.0, outcome=outcome, promised=promised)


def asked(number):
    return requests([0.0] * number, TEXTS, TIERS, 2, seed=1)


def test_kinds_come_by_their_shares():
    tiers = [one.tier for one in asked(1000)]
    for name, kind in KINDS.items():
        assert abs(tiers.count(name) / 1000 - kind.share) < 0.05


def test_a_tier_has_a_multiple_of_the_time_of_a_text_alone():
    tiers = parse_tiers(Plain(ttft_s=0.1, tpot_s=0.01, requests_per_s=5.0).tiers())
    assert tiers == {name: Objectives(0.5, 0.01 * kind.tpot, name) for name, kind in KINDS.items()}


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
    asking: list[int] = []

    def serve_all(workers, wanted):
        asking.extend(text.max_draft for own in wanted for text in own)
        return 1.0, answers

    monkeypatch.setattr("experiments.benchmarks.slo.serve_all", serve_all)
    comparison = Comparison()
    nodes: list[Any] = [None, None]
    comparison.serve(nodes, [one, other], 0)
    assert (comparison.num_texts, comparison.num_different, asking) == (2, 1, [0, 0])
