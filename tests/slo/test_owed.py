"""AdaServe's Eq. (3) and AdaSpec's cap, by hand."""

from math import inf

import pytest

from goodspeed.slo.owed import Standing, longest_round_s, owed_tokens


def test_what_is_owed_grows_with_time_and_falls_with_tokens():
    assert owed_tokens(0.05, 0.0, 0, 0.02) == pytest.approx(0.42), "a round of 21 ms brings one token: that is enough"
    assert owed_tokens(0.05, 1.0, 18, 0.02) == pytest.approx(2.42), "two tokens behind"
    assert owed_tokens(0.05, 1.0, 30, 0.02) == pytest.approx(-9.58), "ahead"


def test_the_tightest_text_bounds_the_round():
    assert longest_round_s([Standing(0.05, 0.08, 1), Standing(0.1, 0.1, 2)]) == pytest.approx(0.02)
    assert longest_round_s([]) == inf


def test_the_example_of_adaspec_one_step_fits_and_two_do_not():
    """TPOT 16 ms, nothing decoded yet: rounds of 1 and 2 drafting steps take 15 and 18 ms."""
    assert 0.015 <= longest_round_s([Standing(0.016, 0.0, 0)]) < 0.018
