"""Probabilities in one byte: every code is its own, and no bytes and no numbers are out of range."""

import math

from hypothesis import given
from hypothesis import strategies as st

from goodspeed.wire import probabilities


def test_each_code_comes_back_and_the_worked_values() -> None:
    assert probabilities.encode(probabilities.PROBABILITIES) == bytes(range(256))
    assert [probabilities.PROBABILITIES[code] for code in (0, 16, 32, 255)] == [1.0, 0.5, 0.25, 2.0**-15.9375]


@given(st.floats(2.0**-15, 1.0))
def test_odds_come_back_within_half_a_step(value: float) -> None:
    decoded = probabilities.PROBABILITIES[probabilities.code(value)]
    assert abs(math.log2(decoded / value)) <= 0.5 / probabilities.STEPS + 1e-9


@given(st.floats())
def test_any_number_has_a_code(value: float) -> None:
    code = probabilities.code(value)
    assert 0 <= code <= 255
    if not value > 0.0:
        assert code == probabilities.LEAST


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_higher_odds_have_no_higher_code(one: float, other: float) -> None:
    assert (probabilities.code(one) - probabilities.code(other)) * (one - other) <= 0.0
