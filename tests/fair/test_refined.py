"""Finished rounds correct a model of a round's time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import MOST_TOKENS, Linear, Roofline
from tests.fair.test_round_time import LINEAR, ROOFLINE


def feed(refined, rounds, truth, factor=1.0, seed=1):
    """rounds: tokens, sessions and context of each; they take as long as the truth says, with noise."""
    random = np.random.default_rng(seed)
    for row in rounds:
        refined.observe(*row, factor * truth.round_s(*row) * float(np.exp(0.05 * random.standard_normal())))


def observe(refined, truth, rounds, *, factor=1.0, seed=0, num_tokens=None):
    """So many rounds of eight sessions, of as many tokens or any number of them."""
    random = np.random.default_rng((seed, 1))
    rows = [(num_tokens or int(random.integers(8, 40)), 8, int(random.integers(500, 3000))) for _ in range(rounds)]
    feed(refined, rows, truth, factor, seed)


def ratios(refined, truth):
    return [refined.round_s(n, 8, 1500) / truth.round_s(n, 8, 1500) for n in (8, 20, 40)]


def test_a_machine_that_became_twice_as_slow_is_known_soon():
    refined = Refined(LINEAR)
    observe(refined, LINEAR, 200)
    observe(refined, LINEAR, 200, factor=2.0)
    assert ratios(refined, LINEAR) == pytest.approx([2.0, 2.0, 2.0], rel=0.06)
    observe(refined, LINEAR, 300, factor=1.0, seed=1)
    assert ratios(refined, LINEAR) == pytest.approx([1.0, 1.0, 1.0], rel=0.06)


@pytest.mark.parametrize("factor", [100.0, 0.01])
@pytest.mark.parametrize("rounds", [0, 100])
def test_one_outlier_hardly_matters(factor, rounds):
    refined = Refined(LINEAR)
    observe(refined, LINEAR, rounds)
    before = refined.round_s(20, 8, 1500)
    observe(refined, LINEAR, 1, factor=factor)
    assert refined.round_s(20, 8, 1500) == pytest.approx(before, rel=0.1 if rounds == 0 else 0.02)


def test_what_a_profile_does_not_see_is_learned_for_each_token():
    truth = Linear(LINEAR.fixed_s, LINEAR.token_s + 2e-4, LINEAR.session_s, LINEAR.context_s)
    refined = Refined(LINEAR)
    observe(refined, truth, 600)
    assert ratios(refined, truth) == pytest.approx([1.0, 1.0, 1.0], rel=0.04)
    assert refined.token_s == pytest.approx(2e-4, rel=0.25)


def test_a_change_of_the_passs_size_takes_as_long_as_its_rows():
    assert Refined(LINEAR).change_s(8, 100) == 0.0
    change_s = LINEAR.round_s(12.0, 8, 100) - LINEAR.round_s(8, 8, 100)
    assert Refined(LINEAR, change_rows=4.0).change_s(8, 100) == pytest.approx(change_s)
    padded = Refined(Roofline((LINEAR,)).with_least(16), change_rows=4.0, least_rows=16)
    assert padded.change_s(8, 100) == pytest.approx(change_s)


def test_the_nodes_own_work_grows_with_its_sessions_and_a_pause_hardly_counts():
    learning = Refined(LINEAR)
    assert learning.work_s(100) == 0.0
    for _ in range(60):
        learning.observe_work(0.0024, 8)
    assert [learning.work_s(number) for number in (8, 32)] == pytest.approx([0.0024, 0.0048], rel=1e-4)
    learning.observe_work(10.0, 8)
    assert learning.work_s(8) == pytest.approx(0.0024 * 1.6, rel=1e-4)


def test_without_a_profile_every_round_costs_the_same_until_one_is_seen():
    refined = Refined()
    assert refined.round_s(1, 1, 0) == refined.round_s(1000, 64, 10**6) == 1.0
    refined.observe(8, 8, 100, 0.004)
    assert refined.round_s(8, 8, 100) == pytest.approx(0.004)
    observe(refined, LINEAR, 200)
    assert ratios(refined, LINEAR) == pytest.approx([1.0, 1.0, 1.0], rel=0.06)


def test_rounds_that_are_all_alike_leave_the_rest_as_it_was():
    refined = Refined(LINEAR)
    observe(refined, LINEAR, 500, factor=1.5, num_tokens=16)
    assert refined.round_s(16, 8, 1500) == pytest.approx(1.5 * LINEAR.round_s(16, 8, 1500), rel=0.03)
    assert 1.2 < refined.round_s(32, 8, 1500) / LINEAR.round_s(32, 8, 1500) < 1.8


PASS = Linear(fixed_s=7e-3, token_s=7e-4, context_s=1e-5)


def eight_tokens_s(refined):
    return refined.round_s(9, 1, 100) - refined.round_s(1, 1, 100)


def test_a_context_that_grows_while_rounds_are_alike_does_not_price_tokens():
    """A chat alone, a token a round, on a machine that profiled a context as dearer than it is."""
    refined = Refined(PASS)
    feed(refined, [(1, 1, context) for context in range(50, 250)] * 5, Linear(fixed_s=8e-3))
    assert eight_tokens_s(refined) == pytest.approx(8 * PASS.token_s, rel=0.3)


@pytest.mark.parametrize("slower", [1.3, 2.0, 3.0])
def test_a_machine_that_becomes_faster_as_rounds_become_alike_prices_tokens_no_higher(slower):
    """As when draft models begin to rest, and free their cores."""
    refined = Refined(PASS)
    feed(refined, [(1 + number % 8, 1, 100) for number in range(200)], PASS, slower)
    feed(refined, [(1, 1, 100)] * 1000, PASS)
    assert eight_tokens_s(refined) == pytest.approx(8 * PASS.token_s, rel=0.15)


@pytest.mark.parametrize("large", [(5, 1, 4000), (8, 8, 6400)])
def test_contexts_that_grow_with_the_sizes_of_rounds_leave_the_scale(large):
    """Such rounds cannot tell tokens from contexts, so the price of a token may be off, but by less than its double."""
    refined = Refined(PASS)
    feed(refined, [(1, 1, 50), large] * 1000, PASS)
    assert refined.scale == pytest.approx(1.0, rel=0.1)
    assert 0.5 * 8 * PASS.token_s < eight_tokens_s(refined) < 2 * 8 * PASS.token_s


NO_TIME, ONLY_CONTEXT, ENDLESS = Linear(), Linear(context_s=1e-3), Linear(fixed_s=1e300, token_s=1e300)
MODELS = [None, LINEAR, ROOFLINE, NO_TIME, ONLY_CONTEXT, ENDLESS]
DURATIONS = st.one_of(st.floats(), st.floats(1e-8, 1e5), st.sampled_from([1.1e-8, 9e4]))
ROWS = st.tuples(st.integers(0, 500), st.integers(0, 64), st.integers(0, 10**6), DURATIONS, st.integers(1, 60))


@settings(max_examples=60)
@given(st.sampled_from(MODELS), st.lists(ROWS, max_size=8))
def test_whatever_is_observed_the_time_stays_positive_and_never_falls_with_tokens(model, rows):
    refined = Refined(model)
    for *row, times in rows:
        for _ in range(times):
            refined.observe(*row)
    assert 0.0 < refined.scale < np.inf
    assert 0.0 <= refined.token_s < np.inf
    assert 0.0 <= refined.usual_error <= 1e3, "a fleet's replicas refuse more"
    seconds = np.broadcast_to(refined.round_s(np.arange(600), 4, 1000), 600)
    assert np.isfinite(seconds).all() or model is ENDLESS
    assert seconds[0] > 0
    assert seconds[1:].tolist() == [refined.round_s(n, 4, 1000) for n in range(1, 600)]
    assert all(later >= earlier for earlier, later in pairwise(seconds))
    for wanted_s in (0.0, 1e-300, 1e-8, 0.03, 1e5, 1e300, np.inf):
        assert 0 <= refined.tokens_in(wanted_s, 4, 1000) <= MOST_TOKENS


@pytest.mark.parametrize("model", [None, LINEAR])
def test_times_that_rise_faster_than_their_tokens_leave_a_scale(model):
    refined = Refined(model)
    for number in range(400):
        num_tokens = 1 + number % 40
        refined.observe(num_tokens, 1, 0, 1e-5 * num_tokens**2)
        assert refined.tokens_in(0.03, 1, 0) > 0
    observe(refined, LINEAR, 400)
    assert ratios(refined, LINEAR) == pytest.approx([1.0, 1.0, 1.0], rel=0.1), "and what comes later is learned"
