"""What drafts bring per step, by hand."""

import math
import random

import pytest

from verify_node.arms.comparisons import Arm, Comparisons
from verify_node.arms.gains import CORRELATION, MEMORY, Gain
from verify_node.arms.stretches import StretchRate


def test_a_gain_is_tokens_over_steps():
    gain = Gain()
    for tokens, steps in ((8, 8), (12, 8), (10, 4)):
        gain.observe(tokens, steps)
    assert gain.mean == pytest.approx(30 / 20)
    assert gain.log == pytest.approx(math.log(1.5))


def test_plain_decoding_has_no_noise():
    gain = Gain()
    for steps in (8, 7, 3, 8):
        gain.observe(steps, steps)
    assert (gain.mean, gain.variance) == (1.0, 0.0)


def test_the_variance_is_that_of_the_mean():
    """Rounds of 8 steps with a deviation of 2 tokens: 400 of them leave 2 / 8 / sqrt(400), if they are independent."""
    rng, gain = random.Random(0), Gain()
    for _ in range(400):
        gain.observe(12 + rng.choice([-2, 2]), 8)
    assert gain.variance == pytest.approx(CORRELATION * (2 / 12) ** 2 / 400, rel=0.3)


def stretches(gain, *means):
    rng = random.Random(0)
    for mean in means:
        for _ in range(24):
            gain.observe(8 * mean + rng.choice([-2, 2]), 8)
        gain.end_stretch()


def test_old_stretches_fade():
    gain = Gain()
    stretches(gain, *[1.2] * MEMORY, *[1.1] * (3 * MEMORY))
    assert gain.mean == pytest.approx(1.1, abs=0.02)


def test_a_surprise_is_half_believed_and_a_second_one_is():
    gain = Gain()
    stretches(gain, *[1.5] * 20)
    assert gain.mean == pytest.approx(1.5, abs=0.03)
    stretches(gain, 1.0)
    assert gain.mean == pytest.approx((2 * 1.5 + 1.0) / 3, abs=0.1)  # a stretch's own deviation is 0.05
    stretches(gain, 1.0)
    assert gain.mean == pytest.approx(1.0, abs=0.1)


def test_surprises_on_both_sides_are_noise():
    gain = Gain()
    stretches(gain, *[1.5] * 20, 0.9, 2.1)
    assert 1.2 < gain.mean < 1.8


def test_what_was_never_seen_or_brought_nothing_has_a_logarithm_too():
    assert (Gain().log, Gain().variance) == (0.0, 0.0)
    gain = Gain()
    gain.observe(0, 8)
    assert math.isfinite(gain.log)


def test_an_advantage_is_that_in_pace_and_that_in_gain():
    """By hand: twice the pace, and the best arm brings 1.5 tokens a step: 4 / 3 in all."""
    comparisons = Comparisons(Arm.NGRAM)
    comparisons.observe_gain(Arm.NGRAM, 12, 8)
    comparisons.observe_gain(Arm.NONE, 8, 8)
    one, two = StretchRate(1.0, 1.0, 8), StretchRate(2.0, 2.0, 8)
    comparisons.observe_other(Arm.NONE, one, two, one, 0.0)
    assert math.exp(comparisons.advantage(Arm.NONE)) == pytest.approx(4 / 3)
    comparisons.refer_to(Arm.NONE, Arm.NGRAM, 0.0)
    assert math.exp(comparisons.advantage(Arm.NGRAM)) == pytest.approx(3 / 4)
    assert comparisons.advantage(Arm.NONE) == 0.0
