"""Averages that begin with their first value."""

from goodspeed.fair.estimators import smoothed


def test_the_first_value_is_taken_whole():
    assert smoothed(0.0, 0.3, 0.2) == 0.3


def test_later_values_move_it_by_a_share():
    assert smoothed(1.0, 2.0, 0.25) == 1.25
    assert smoothed(smoothed(0.0, 4.0, 0.5), 2.0, 0.5) == 3.0
