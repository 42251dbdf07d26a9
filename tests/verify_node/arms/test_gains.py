"""What drafts bring per step, by hand."""

import math
import random

import pytest

from verify_node.arms.comparisons import Arm, Comparisons
from verify_node.arms.gains import KEPT, RecentGain
from verify_node.arms.stretches import CORRELATION, ArmRound, Stretch, StretchRate


def rate(gain, steps_per_s=1.0, variance=0.0):
    return StretchRate(gain * steps_per_s, steps_per_s, 8, variance)


def test_the_newest_stretches_weigh_most():
    recent = RecentGain()
    for gain in (1.5, 1.2):
        recent.observe(rate(gain))
    assert recent.mean == pytest.approx((KEPT * 1.5 + 1.2) / (KEPT + 1.0))
    for _ in range(60):
        recent.observe(rate(1.1))
    assert recent.mean == pytest.approx(1.1, abs=1e-3)


def test_a_trial_is_as_uncertain_as_stretches_lie_apart_and_plain_decoding_only_as_their_mean():
    recent = RecentGain()
    for number in range(400):
        recent.observe(rate(1.5 * math.exp(0.1 * (-1) ** number)))
    of_mean = recent.variance_beside(rate(1.0))
    assert of_mean == pytest.approx(0.01 * (1 - KEPT) / (1 + KEPT), rel=0.2)
    assert recent.variance_beside(rate(1.5, variance=0.001)) == pytest.approx(of_mean + 0.01, rel=0.2)
    assert recent.variance_beside(rate(1.5, variance=0.09)) == pytest.approx(of_mean + 0.09)


def stretch_of(tokens):
    """Rounds of 8 steps."""
    stretch = Stretch(num_rounds=100, seconds=100.0)
    for one in tokens:
        stretch.observe(ArmRound(one, 8.0, 0.03, 8))
    found = stretch.rate()
    assert found is not None
    return found


def test_plain_decoding_has_no_noise_in_gain():
    assert (stretch_of([8.0] * 24).gain, stretch_of([8.0] * 24).gain_variance) == (1.0, 0.0)


def test_the_variance_of_a_gain_is_that_of_the_mean():
    """Rounds with a deviation of 2 of 12 tokens: 2,400 of them leave 2 / 12 / sqrt(2,400), if independent."""
    rng = random.Random(0)
    found = stretch_of([12.0 + rng.choice([-2, 2]) for _ in range(2400)])
    assert found.gain_variance == pytest.approx(CORRELATION * (2 / 12) ** 2 / 2400, rel=0.05)


def test_an_advantage_is_that_in_pace_and_that_in_gain():
    """By hand: twice the pace, and the best arm brings 1.5 tokens a step: 4 / 3 in all."""
    comparisons = Comparisons()
    comparisons.observe_best(rate(1.5))
    comparisons.observe_other(Arm.NONE, rate(1.5), rate(1.0, 2.0), rate(1.5), 0.0)
    assert math.exp(comparisons.advantage(Arm.NONE)) == pytest.approx(4 / 3)


def test_a_noisy_gain_makes_a_comparison_less_sure():
    errors = []
    for variance in (0.0, 0.04):
        comparisons = Comparisons()
        comparisons.observe_best(rate(1.5))
        comparisons.observe_other(Arm.NGRAM, rate(1.5), rate(1.5, variance=variance), rate(1.5), 0.0)
        errors.append(comparisons.error(Arm.NGRAM, 0.0))
    assert errors[1] ** 2 == pytest.approx(errors[0] ** 2 + 0.04)
