"""Means of comparisons, by hand."""

import math

import pytest

from verify_node.arms.comparisons import (
    FIRST_NOISE,
    FORGETTING_S,
    LARGEST_STEP,
    MIN_COMPARISONS,
    MIN_NOISE,
    Advantage,
    Arm,
    Comparisons,
)
from verify_node.arms.stretches import StretchRate

NOISE = 0.1


def advantage(*differences: float) -> Advantage:
    known = Advantage()
    for difference in differences:
        known.learn(difference, NOISE, 0.0)
    return known


def rate(steps_per_s: float, num_sessions: float = 4) -> StretchRate:
    return StretchRate(steps_per_s, steps_per_s, num_sessions)


def test_comparisons_are_averaged():
    known = advantage(0.1, 0.2, 0.15)
    assert known.mean == pytest.approx(0.15)
    assert known.weight == 3


def test_older_comparisons_weigh_less():
    """By hand: the first one weighs 1/e when the second one comes."""
    known = advantage(0.1)
    known.learn(0.2, NOISE, FORGETTING_S)
    assert known.weight == pytest.approx(1 + math.exp(-1))
    assert known.mean == pytest.approx((0.1 * math.exp(-1) + 0.2) / (1 + math.exp(-1)))


def test_an_outlier_moves_the_mean_by_a_bounded_step():
    """By hand: 10 comparisons weigh 2 before it, and it counts as three standard deviations away."""
    known = advantage(*[0.0] * 10, 5.0)
    assert known.mean == pytest.approx(LARGEST_STEP * NOISE / 3)
    assert known.weight == 3


def test_a_second_outlier_on_the_same_side_begins_anew():
    assert advantage(*[-0.4] * 10, 0.3, 0.3).mean == pytest.approx(0.3)
    assert advantage(*[-0.4] * 10, 0.3, 0.3).weight == 1


def test_outliers_on_both_sides_begin_nothing_anew():
    known = advantage(*[0.0] * 10, 1.0, -1.0)
    assert abs(known.mean) < LARGEST_STEP * NOISE / 2
    assert known.weight == 3


def test_differences_add_up_and_so_do_variances():
    """By hand: 0.3 and 0.1 over the old arm, from four and from two comparisons: 1/4 + 1/2 = 3/4."""
    new, third, old = advantage(*[0.3] * 4), advantage(0.1, 0.1), Advantage()
    third.refer_to(new, 0.0, is_reference=False)
    old.refer_to(new, 0.0, is_reference=True)
    assert third.mean == pytest.approx(-0.2)
    assert third.weight == pytest.approx(4 / 3)
    assert old.mean == pytest.approx(-0.3)
    assert old.weight == pytest.approx(4)


@pytest.mark.parametrize("known", [advantage(0.1, 0.1), Advantage()])
def test_nothing_follows_from_what_is_not_known(known):
    known.refer_to(Advantage() if known.weight else advantage(0.1), 0.0, is_reference=False)
    assert (known.mean, known.weight) == (0.0, 0.0)


def test_the_noise_is_that_of_stretches_of_one_arm():
    """Stretches a tenth apart: sqrt(3/4) of it, and 1.25 times the mean absolute difference."""
    comparisons = Comparisons()
    for number in range(500):
        comparisons.observe_same(rate(10.0), rate(10.0 * math.exp(0.1 * (-1) ** number)))
    comparisons.observe_other(Arm.NONE, rate(1.0), rate(1.0), rate(1.0), 0.0)
    assert comparisons.error(Arm.NONE, 0.0) == pytest.approx(1.25 * 0.1 * math.sqrt(3 / 4), rel=0.01)


def test_noise_is_never_believed_to_be_nothing():
    comparisons = Comparisons()
    for _ in range(1000):
        comparisons.observe_same(rate(1.0), rate(1.0))
    comparisons.observe_other(Arm.NONE, rate(1.0), rate(1.0), rate(1.0), 0.0)
    assert comparisons.error(Arm.NONE, 0.0) == pytest.approx(MIN_NOISE, rel=1e-3)


def test_stretches_too_far_apart_are_not_compared_with():
    comparisons = Comparisons()
    assert comparisons.observe_same(rate(1.0), rate(math.exp(LARGEST_STEP * FIRST_NOISE)))
    assert not Comparisons().observe_same(rate(1.0), rate(math.exp(2 * LARGEST_STEP * FIRST_NOISE)))


def test_an_arm_is_compared_with_the_mean_of_its_neighbours():
    comparisons = Comparisons()
    comparisons.observe_other(Arm.NONE, rate(1.0), rate(2.0), rate(4.0), 0.0)
    assert comparisons.advantage(Arm.NONE) == pytest.approx(0.0)


def test_significance_needs_enough_comparisons_and_more_than_noise():
    comparisons = Comparisons()
    for number in range(1, 60):
        comparisons.observe_other(Arm.NONE, rate(1.0), rate(1.2), rate(1.0), 0.0)
        enough = number >= MIN_COMPARISONS and math.log(1.2) > 2.0 * FIRST_NOISE / math.sqrt(number)
        assert comparisons.is_better(Arm.NONE, 0.0) is enough
        assert not comparisons.is_worse(Arm.NONE, 0.0)


def test_how_a_rate_goes_with_load_is_learned():
    """The rate goes with the square root of the number of sessions."""
    comparisons = Comparisons()
    for load in [2.0, 4.0, 3.0, 6.0] * 20:
        comparisons.observe_same(rate(2.0, 4.0), rate(math.sqrt(load), load))
    comparisons.observe_other(Arm.NONE, rate(2.0, 4.0), rate(math.sqrt(7.0), 7.0), rate(2.0, 4.0), 0.0)
    assert comparisons.advantage(Arm.NONE) == pytest.approx(0.0, abs=0.01)
