"""Lengths by tier: the paper's App. D by hand, and against all lengths."""

import random
from itertools import product

import pytest

from goodspeed.admission.lengths import accepted, lengths, outcome
from goodspeed.errors import ConfigError

TERMS = ((6.878e-5, 1.249e-6, 0.02480), (7.523e-5, 3.465e-3, 3.033e-3))
"""OPT-6.7B with a draft model of 125m on an A100: seconds for a token, for a step of the draft model, and always."""

MIX = {0.05: 20, 0.1: 60}


def a100(seconds, steps):
    """B(t, s) = min over terms of (t - c - b s) / a, not rounded; s is the longest length that is verified."""
    return min((seconds - c - b * steps) / a for a, b, c in TERMS)


def test_expected_tokens_by_hand():
    assert accepted(0.7, 1) == 1.0
    assert accepted(0.7, 2) == pytest.approx(1.7)
    assert accepted(0.5, 3) == pytest.approx(1.75)
    assert accepted(1.0, 3) == 3.0
    assert accepted(0.0, 3) == 1.0


def test_the_example_of_20_requests_at_50_ms_and_60_at_100_ms():
    assert outcome(0.7, MIX, {0.05: 1, 0.1: 1}, a100).prefill_rate == pytest.approx(5_727, abs=1)
    found = lengths(0.7, MIX, a100)
    assert found.verified == {0.05: 4, 0.1: 2}
    assert found.prefill_rate == pytest.approx(9_941, abs=1)
    assert found.round_s == pytest.approx(0.127, abs=0.0005)


def test_nothing_drafted_is_accepted_so_nothing_is_drafted():
    assert lengths(0.0, MIX, a100) == outcome(0.0, MIX, {0.05: 1, 0.1: 1}, a100)


def test_everything_is_accepted_so_time_grows_with_the_length():
    found = lengths(1.0, {0.05: 20, 0.1: 60}, lambda seconds, steps: 2000 * seconds - 20, most=4)
    assert found.verified == {0.05: 4, 0.1: 2}
    assert found.round_s == pytest.approx(0.2)


def test_more_sessions_than_rounds_carry_have_no_lengths():
    assert lengths(0.7, {0.05: 2_000}, a100) is None
    assert lengths(0.7, {0.02: 1}, a100, most=1) is None, "not even an empty round is as short"


def mixes():
    rng = random.Random(0)
    found = []
    for _ in range(40):
        tpots = rng.sample([0.03, 0.05, 0.075, 0.1, 0.15, 0.2], rng.randint(1, 3))
        found.append((rng.choice([0.05, 0.3, 0.5, 0.7, 0.8, 0.95]), {tpot_s: rng.randint(1, 80) for tpot_s in tpots}))
    return found


@pytest.mark.parametrize(("alpha", "tiers"), mixes())
def test_no_other_lengths_bring_more(alpha, tiers):
    every = [dict(zip(tiers, each, strict=True)) for each in product(range(1, 11), repeat=len(tiers))]
    best = max(outcome(alpha, tiers, one, a100).prefill_rate for one in every)
    found = lengths(alpha, tiers, a100)
    if found is None:
        assert best < 0
    else:
        assert found.prefill_rate == pytest.approx(best)
        assert found == outcome(alpha, tiers, found.verified, a100)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_impossible_acceptance_is_refused(alpha):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        lengths(alpha, MIX, a100)


@pytest.mark.parametrize("tiers", [{}, {0.0: 1}, {0.1: -1}, {float("nan"): 1}])
def test_impossible_tiers_are_refused(tiers):
    with pytest.raises(ConfigError, match="the tiers are"):
        lengths(0.7, tiers, a100)
    with pytest.raises(ConfigError, match="most is 0"):
        lengths(0.7, MIX, a100, most=0)
