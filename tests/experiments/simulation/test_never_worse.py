"""The experiment on being never worse: what it measures, on worlds whose goodput is known by hand."""

from dataclasses import replace

import pytest

from experiments.harness.experiment import HERE, load
from experiments.never_worse import Cell, Config
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.steady import Stretch, steady
from goodspeed.fair.round_time import Linear

QUICK = load(HERE / "configs" / "never_worse.toml", "quick", Config)
SMALL = replace(QUICK, warm_rounds=12, measured_total=120, measured_tokens=30)
MACHINE = SMALL.machines["cpu"]


def test_plain_decoding_is_a_token_of_everybody_each_round():
    cell = Cell(SMALL, MACHINE, 0.001, 4, [0.5])
    assert cell.plain().total == pytest.approx(4 / MACHINE.cost.round_s(4, 4, 0), rel=1e-6)


def test_texts_are_measured_once_enough_rounds_have_passed():
    cell = Cell(SMALL, MACHINE, 0.001, 1, [0.5])
    found = cell._run(Stretch(5, 30, warm_rounds=11), max_draft=0, policy="fixed")
    assert found.warm == 11  # a token each round
    assert found.seconds == pytest.approx(30 * MACHINE.cost.round_s(1, 1, 0))


def test_a_fixed_length_by_hand():
    """All is accepted: 3 tokens in a round of 10 + 3 x 1 ms, the way, 2 steps of drafting."""
    settings = Settings(
        num_clients=1,
        policy="fixed",
        budget=2,
        max_draft=2,
        alpha=(1.0,),
        round_cost=Linear(fixed_s=0.01, token_s=0.001),
        draft_cost=(Linear(fixed_s=0.002),),
        latency_s=(0.005,),
        **PAPER,
    )
    found = steady(settings, Stretch(30, 90), 1)
    assert found.total == pytest.approx(3 / (0.013 + 0.01 + 0.004), rel=0.04)
    assert found.drafted.tolist() == [2.0]


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_the_length_that_is_expected_to_be_best_is_the_best(drafter):
    cell = Cell(replace(SMALL, lengths=[1, 2, 4]), MACHINE, 0.02, 4, [0.8], drafter)
    speeds = {length: cell._fixed(length, Stretch(20, 30)).log_utility for length in (1, 2, 4)}
    assert max(speeds, key=speeds.__getitem__) == max(speeds, key=cell.expected)
    assert {length: cell.expected(length) / 4 for length in speeds} == pytest.approx(
        {length: utility / 4 for length, utility in speeds.items()}, abs=0.1
    )


def test_an_index_drafts_in_no_time_and_a_node_without_a_model_is_offered_for():
    cells = {drafter: Cell(SMALL, MACHINE, 0.001, 2, [0.9], drafter) for drafter in ("model", "ngram")}
    fixed = {drafter: max(way.total for way in cell.fixed(20).values()) for drafter, cell in cells.items()}
    assert fixed["ngram"] > 1.1 * fixed["model"]  # by a model's steps, of which there is one for each token
    assert cells["ngram"].gradient(True).total > 1.2 * cells["ngram"].plain().total
