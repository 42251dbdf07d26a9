"""Rounds of one device that drafts and then verifies: the tiny cases by hand, and the same time as in a whole world."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from experiments.adaspec import MACHINES
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.drafters import Adaptive, Fixed, Trees
from experiments.simulation.open_loop.mix import Kind, mixed
from experiments.simulation.open_loop.service import serve
from experiments.simulation.open_loop.together import Batch, Server, Text
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Acceptance
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives

TARGET = Linear(fixed_s=0.010, token_s=0.001)
STEP = Linear(fixed_s=0.001)
ALONE = Server(TARGET, STEP, 100)
TREES = Trees(budget=20, step_budget=6, depths=(2, 4), most_width=3)
KINDS = [Kind("short", 0.5, 30, 40, 0.5), Kind("long", 0.5, 400, 80, 0.7)]


@dataclass(frozen=True)
class Known(Acceptance):
    """A text whose drafted tokens have these confidences by their place."""

    confidences: tuple[float, ...]

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return self.confidences[position % len(self.confidences)]

    def probabilities(self, position: int, offset: int) -> float:
        return self.rate(position, offset, True)


def batch(*texts: tuple[float, ...], slo: Objectives | None = None) -> Batch:
    arrivals = [Arrival(0.0, 1, 50, Known(one), slo) for one in texts]
    return Batch([Text(number, one) for number, one in enumerate(arrivals)], TARGET, STEP)


def lengths(made: Batch) -> list[int]:
    return [len(text.paths) for text in made.texts]


def test_a_text_alone_takes_a_round_for_each_token_and_one_for_its_prompt():
    [text] = ALONE.serve([Arrival(1.0, 7, 5, Known((0.5,)))], Fixed(0)).texts
    assert text.kept.ttft_s == pytest.approx(0.017)
    assert text.seconds == pytest.approx(0.017 + 4 * 0.011)


def test_drafts_that_are_always_right_are_accepted_whole():
    done = ALONE.serve([Arrival(0.0, 7, 9, Known((1.0,)))], Fixed(3))
    assert (done.num_rounds, done.accepted, done.drafted) == (3, 3.0, 3.0)
    assert done.texts[0].seconds == pytest.approx(0.017 + 2 * (0.003 + 0.014))


def test_the_least_likely_tokens_go_while_that_pays():
    """Four steps of 1 ms; 16 ms without drafted tokens, 1 ms for each. Paths 0.9, 0.81, 0.081, ... and 0.2, 0.04, ...

    With all eight (1.791 + 0.2496 + 2) / 24 ms = 168.4/s; down to 0.9 and 0.81 alone it rises to 3.71 / 18 ms = 206.1/s
    (0.2 kept: 3.91 / 19 ms = 205.8/s).
    """
    made = batch((0.9, 0.9, 0.1, 0.0), (0.2, 0.2, 0.2, 0.2))
    for _ in range(4):
        made.step(made.texts)
    Adaptive()._eliminate(made)
    assert lengths(made) == [2, 0]


def test_drafting_goes_on_while_the_next_step_is_expected_to_pay():
    """One text, 0.5 each, after a history of 0.5: 11, 13, 15 ms for 1, 1.5 and 1.75 tokens: 0, 1 or 2 steps.

    The first step is always made, since Alg. 1 begins at -1: 1.5 / 13 ms = 115/s. A second: 1.75 / 15 ms = 117/s.
    A third: 1.875 / 17 ms = 110/s.
    """
    made = batch((0.5,) * 9)
    Adaptive(confidence=0.5, eliminates=False).draft(made)
    assert lengths(made) == [2]


def test_as_many_nodes_of_trees_are_accepted_as_their_paths_claim():
    made = batch(*[(0.3, 0.6, 0.5)] * 2000)
    for _ in range(3):
        made.step(made.texts, 3)
    claimed = sum(sum(text.paths) for text in made.texts)
    assert sum(text.accept(1.0) for text in made.texts) == pytest.approx(claimed, rel=0.05)
    assert made.num_drafted == 0


@pytest.mark.parametrize("slo_phase", [True, False])
@pytest.mark.parametrize(("num_texts", "num_drafted"), [(1, 12), (4, 16), (19, 1), (30, 0)])
def test_no_more_is_verified_than_the_budget_allows(num_texts, num_drafted, slo_phase):
    """Each text has one of 20 tokens; a single one drafts four layers of three nodes."""
    made = batch(*[(0.9, 0.8)] * num_texts, slo=Objectives(tpot_s=0.001, tpot_window=0))
    replace(TREES, slo_phase=slo_phase).draft(made)
    assert made.num_drafted == num_drafted


def test_a_text_behind_its_tpot_gets_its_nodes_before_likelier_ones_of_others():
    """Each may get three of six drafted tokens by what it owes (1.2 equal parts)."""

    def made(slo_phase):
        found = batch((0.3,) * 9, (0.9,) * 9, slo=Objectives(tpot_s=0.05, tpot_window=0))
        late, early = found.texts
        late.write(1, 0.0)
        early.write(1, 0.0)
        early.write(20, 0.1)
        found.now = 0.1
        replace(TREES, budget=8, step_budget=2, depths=(4, 4), slo_phase=slo_phase).draft(found)
        return lengths(found)

    assert made(False) == [2, 4]
    assert made(True) == [3, 3]


def test_a_text_waits_for_its_own_draft_alone():
    """The second text's prompt is read, and its drafts verified, while the first one's drafts are on their way.

    First: 17 ms, a draft until 60 ms, a round of 14 ms until 74 ms, and so on. Second: read from 20 to 37 ms, a draft
    until 80 ms, verified at once, until 94 ms.
    """
    arrivals = [Arrival(0.0, 7, 9, Known((1.0,))), Arrival(0.020, 7, 5, Known((1.0,)))]
    done = replace(ALONE, line_s=0.04).serve(arrivals, Fixed(3))
    assert {text.num_tokens: text.seconds for text in done.texts} == {
        5: pytest.approx(0.017 + 0.043 + 0.014),
        9: pytest.approx(0.017 + 2 * (0.043 + 0.014)),
    }
    assert done.busy_s == pytest.approx(2 * 0.017 + 3 * 0.014), "the device's own time, without the drafts'"


@pytest.mark.thorough
def test_plain_decoding_takes_as_long_as_in_a_world_of_state_machines():
    target, draft = MACHINES["7B"]
    arrivals = mixed([0.2 * number for number in range(60)], KINDS, 2.0, Random(3))
    settings = Settings(num_clients=4, max_round_tokens=512, round_cost=target, known_cost=True, latency_s=(0.0,))
    world = serve(replace(settings, self_draft=False, policy="fixed", max_draft=0), arrivals, 1)
    assert Server(target, draft, 512).serve(arrivals, Fixed(0)).mean_s == pytest.approx(world.mean_s, rel=0.02)
