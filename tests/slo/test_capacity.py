"""Rounds surely carry so many tokens: those of sessions that take part, less what is left to best effort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import MOST_TOKENS, Linear
from goodspeed.slo.capacity import SURE, Capacity

COST = Linear(fixed_s=0.01, token_s=0.001, session_s=0.002, context_s=1e-5)


def rounds(num_sessions: int = 2, context: int = 100, most: int = 64) -> Capacity:
    return Capacity(COST, 0.0, most, num_sessions, context)


def test_tokens_of_those_who_take_part() -> None:
    """10 ms, 2 sessions of 2 ms and 100 cached tokens of 10 us leave 15 of 30 ms."""
    assert int(rounds().tokens_in(0.03) + 1e-6) == 15
    assert rounds().least_s == pytest.approx(0.01 + 0.002 + 0.004 + 0.001)
    largest_s = 0.01 + 0.064 + 0.004 + 0.001
    assert rounds().tokens_in(2 * largest_s + 1e-9) == pytest.approx(128, abs=1e-3), "more time is several rounds"


def test_what_rounds_take_beside_their_tokens_leaves_fewer_of_these() -> None:
    longer = Capacity(COST, 0.0, 64, 2, 100, extra_s=0.005)
    assert longer.tokens_in(0.03 + 1e-9) == 10
    assert longer.least_s == pytest.approx(rounds().least_s + 0.005)
    assert longer.beside(0.035 + 1e-9, 5, [200] * 50) == 2


def test_a_token_of_best_effort_brings_its_session_and_its_text() -> None:
    """Beside 5 promised tokens 10 ms are left; each other token takes 1 ms, its session 2 and its 200 tokens 2."""
    assert rounds().beside(0.03 + 1e-9, 5, [200] * 50) == 2
    assert rounds().beside(0.03 + 1e-9, 5, [200]) == 6, "4 more are the same session's"
    assert rounds().beside(0.03 + 1e-9, 5, []) == 10, "drafts of promised texts bring none"
    assert rounds().beside(0.03 + 1e-9, 5, [200, 200, 100_000]) == 2, "a long text takes nothing from those before it"
    assert rounds().beside(0.03, 15, [200]) == rounds(most=8).beside(10.0, 8, [200]) == 0, "as many as there may be"


def test_what_is_carried_for_sure_is_less_the_worse_rounds_are_known() -> None:
    unsure = Refined(COST)
    for place in range(50):
        unsure.observe(10, 2, 100, 0.05 if place % 2 else 0.01)
    assert unsure.usual_error > 0.0
    usual_s = unsure.round_s(2, 2, 100)
    assert Capacity(unsure, unsure.usual_error, 64, 2, 100).least_s > (1 + SURE * unsure.usual_error) * 0.9 * usual_s


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.integers(1, 4096), st.floats(min_value=-1e300, max_value=np.inf))
def test_rounds_of_any_told_model_carry_a_number_of_tokens(fixed_s, token_s, most, seconds):
    carried = Capacity(Linear(fixed_s, token_s), 0.0, most, 3, 100.0).tokens_in(seconds)
    assert 0 <= carried <= MOST_TOKENS


@given(st.integers(1, 300), st.integers(1, 64), st.floats(0.0, 0.5), st.floats(1e-4, 0.01))
def test_the_least_seconds_for_tokens_carry_just_these(num_tokens, most, usual_error, token_s):
    rounds = Capacity(Linear(0.01, token_s), usual_error, most, 3, 100.0)
    seconds = rounds.seconds_for(num_tokens)
    assert rounds.tokens_in(seconds * (1 + 1e-9)) >= num_tokens
    assert rounds.tokens_in(seconds * (1 - 1e-6)) < num_tokens
