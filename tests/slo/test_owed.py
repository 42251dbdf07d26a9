"""AdaServe's Eq. (3) and AdaSpec's cap, by hand."""

import pytest

from goodspeed.slo.owed import Standing, owed_tokens


def test_what_is_owed_grows_with_time_and_falls_with_tokens():
    assert owed_tokens(0.05, 0.0, 0, 0.02) == pytest.approx(0.42), "a round of 21 ms brings one token: that is enough"
    assert owed_tokens(0.05, 1.0, 18, 0.02) == pytest.approx(2.42), "two tokens behind"
    assert owed_tokens(0.05, 1.0, 30, 0.02) == pytest.approx(-9.58), "ahead"


def test_how_long_a_round_may_take_that_brings_one_token():
    assert Standing(0.05, 0.08, 1).left_s == pytest.approx(0.02)
    assert Standing(0.1, 0.1, 2).left_s == pytest.approx(0.2)


def test_the_example_of_adaspec_one_step_fits_and_two_do_not():
    """TPOT 16 ms, nothing decoded yet: rounds of 1 and 2 drafting steps take 15 and 18 ms."""
    assert 0.015 <= Standing(0.016, 0.0, 0).left_s < 0.018
