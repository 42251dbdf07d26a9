"""The toy worlds that compare ways of finding the best arm count what they say they count."""

import math

import pytest

from experiments.simulation.switchback import Thompson, World, play, rates
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound


class Fixed:
    """A chooser of given arms, a round each; what it calls the best arm changes once."""

    def __init__(self, arms: list[Arm], best: list[Arm]) -> None:
        self.arms, self.bests, self.seen = arms, best, 0

    @property
    def arm(self) -> Arm:
        return self.arms[self.seen % len(self.arms)]

    @property
    def best(self) -> Arm:
        return self.bests[min(self.seen // 100, len(self.bests) - 1)]

    def observe(self, done: ArmRound) -> None:
        self.seen += 1


def test_what_is_lost_is_the_difference_to_the_best_arm():
    outcome = play(World(rates(0.2, Arm.NGRAM)), Fixed([Arm.MODEL], [Arm.MODEL]), 500, seed=0)
    assert outcome.loss == pytest.approx(0.2)
    assert outcome.explored == 0.0
    assert play(World(rates(0.2, Arm.NGRAM)), Fixed([Arm.NGRAM], [Arm.NGRAM]), 500, seed=0).loss == 0.0


def test_rounds_of_other_arms_are_explored_time():
    chooser = Fixed([Arm.MODEL, Arm.MODEL, Arm.MODEL, Arm.NONE], [Arm.MODEL])
    assert play(World(rates(0.0, Arm.NGRAM)), chooser, 4000, seed=0).explored == pytest.approx(0.25, abs=0.02)


def test_a_change_to_an_arm_that_is_not_better_is_false():
    world = World({Arm.NONE: 1.0, Arm.NGRAM: 1.0, Arm.MODEL: 0.5})
    outcome = play(world, Fixed([Arm.MODEL], [Arm.MODEL, Arm.NONE, Arm.NGRAM, Arm.MODEL]), 500, seed=0)
    assert (outcome.num_changes, outcome.num_false) == (3, 2)
    assert outcome.ended_with is Arm.MODEL


def test_worlds_turn():
    world = World(rates(0.2, Arm.NGRAM), turns_s=10.0)
    assert [world.rate(Arm.NGRAM, now_s) for now_s in (0.0, 10.0, 20.0)] == pytest.approx([1.0, 0.8, 1.0])
    assert [world.rate(Arm.NONE, now_s) for now_s in (0.0, 10.0, 20.0)] == pytest.approx([0.8, 1.0, 0.8])
    assert World(rates(0.2, Arm.NGRAM)).turns_s == math.inf


def test_the_rival_finds_a_large_difference():
    outcome = play(World(rates(0.5, Arm.NGRAM)), Thompson(seed=1), 10_000, seed=1)
    assert outcome.ended_with is Arm.NGRAM
    assert outcome.explored < 0.1
