"""Eq. (3) and Eq. (4): by hand first, then as laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.errors import ConfigError
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, jain_index, smoothed

shares = st.floats(0.001, 1.0)


def test_acceptance_moves_by_eta_towards_the_mean_agreement_and_goodput_by_beta_towards_a_rounds_tokens():
    acceptance = AcceptanceEstimator(eta=0.25, initial=0.5)
    acceptance.observe(agreement=3.0, num_drafted=4)
    assert acceptance.value == 0.75 * 0.5 + 0.25 * 0.75
    goodput = GoodputEstimator(beta=0.5, initial=2.0)
    goodput.observe(tokens=5)
    assert goodput.value == 3.5
    goodput.observe(tokens=1, rounds=1)
    assert goodput.value == 2.25


def test_weighed_evidence_is_the_mean_so_far_and_then_steps_of_eta():
    estimator, agreement = AcceptanceEstimator(0.1, 0.5, worth=2.0), [3.0, 0.0, 4.0, 1.0]
    for place, agreed in enumerate(agreement, 1):
        estimator.observe(agreed, 4)
        assert estimator.value == pytest.approx((2.0 * 0.5 + sum(agreement[:place])) / (2.0 + 4 * place))
    for _ in range(20):
        estimator.observe(2.0, 4)
    known = estimator.value
    estimator.observe(4.0, 4)
    assert estimator.value == pytest.approx(0.9 * known + 0.1)
    known = estimator.value
    estimator.observe(1.0, 1)
    assert estimator.value == pytest.approx(0.95 * known + 0.05)  # half of a full draft
    estimator.observe(0.0, 0)
    assert estimator.worth == 2.0 + 25 * 4 + 1


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_acceptance_stays_strictly_inside_and_comes_back(agreement, eta):
    estimator = AcceptanceEstimator(eta, initial=agreement)
    for _ in range(200):
        estimator.observe(agreement, 1)
        assert 0.0 < estimator.value < 1.0
    assert estimator.value == pytest.approx(agreement, abs=1e-5)
    estimator.observe(1.0 - agreement, 1)
    assert abs(estimator.value - agreement) >= eta * 0.99


@given(beta=shares, initial=st.floats(0.1, 50), tokens=st.integers(0, 40), rounds=st.integers(1, 60))
def test_many_rounds_at_once_are_as_many_steps_with_tokens_spread_evenly(beta, initial, tokens, rounds):
    at_once, stepwise = GoodputEstimator(beta, initial), GoodputEstimator(beta, initial)
    at_once.observe(tokens, rounds)
    for _ in range(rounds):
        stepwise.observe(tokens / rounds)
    assert at_once.value == pytest.approx(stepwise.value, rel=1e-9)


@pytest.mark.parametrize("beta", [0.01, 0.5, 1.0])
def test_goodput_stays_positive(beta):
    estimator = GoodputEstimator(beta, initial=1.0)
    for _ in range(5000):
        estimator.observe(tokens=0)
    assert 0.0 < estimator.value < 1e-5


@pytest.mark.parametrize(
    ("make", "wrong", "told"),
    [
        (lambda eta: AcceptanceEstimator(eta, 0.5), (0.0, 1.1, math.nan, math.inf), "eta"),
        (lambda initial: AcceptanceEstimator(0.5, initial), (-0.1, 1.1, math.nan), "acceptance rate"),
        (lambda worth: AcceptanceEstimator(0.5, 0.5, worth), (0.0, -1.0, math.nan, math.inf), "worth"),
        (lambda beta: GoodputEstimator(beta, 1.0), (0.0, 1.1, math.nan, math.inf), "beta"),
        (lambda initial: GoodputEstimator(0.5, initial), (0.0, -1.0, math.nan, math.inf), "goodput"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(make, wrong, told):
    for value in wrong:
        with pytest.raises(ConfigError, match=told):
            make(value)


def test_an_average_begins_with_its_first_value():
    assert smoothed(0.0, 0.3, 0.2) == 0.3
    assert smoothed(1.0, 2.0, 0.25) == 1.25


@pytest.mark.parametrize(("agreement", "num_drafted"), [(-1.0, 2), (2.5, 2), (math.nan, 2), (0.0, -1), (0.5, 0)])
def test_an_impossible_agreement_is_refused_and_changes_nothing(agreement, num_drafted):
    estimator = AcceptanceEstimator(eta=0.5, initial=0.5)
    with pytest.raises(ValueError, match="impossible"):
        estimator.observe(agreement, num_drafted)
    assert estimator.value == 0.5


@pytest.mark.parametrize(("tokens", "rounds"), [(-1, 1), (math.nan, 1), (math.inf, 1), (1, 0), (1, -3)])
def test_impossible_tokens_are_refused_and_change_nothing(tokens, rounds):
    estimator = GoodputEstimator(beta=0.5, initial=2.0)
    with pytest.raises(ValueError, match="impossible"):
        estimator.observe(tokens, rounds)
    assert estimator.value == 2.0


def test_jain_by_hand() -> None:
    assert jain_index([3.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain_index([1.0, 3.0]) == pytest.approx(16 / 20)
    assert (jain_index([5.0, 5.0]), jain_index([])) == (1.0, 0.0)
