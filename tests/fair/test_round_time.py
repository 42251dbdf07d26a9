"""Models of a forward pass's time: made-up coefficients come back, and finished rounds correct them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodspeed.fair.fit import fit_roofline, r_squared
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import MOST_TOKENS, CostModel, Linear, Roofline, Sample, knee

LINEAR = Linear(fixed_s=5e-3, token_s=3e-4, session_s=1e-4, context_s=2e-7)
READ, COMPUTE = Linear(fixed_s=8e-3, context_s=3e-8), Linear(fixed_s=1e-3, token_s=5e-5, context_s=1e-8)
ROOFLINE = Roofline((READ, COMPUTE))


def sampled(model, noise=0.0):
    """A grid of rounds with the model's times, each moved by so much."""
    random = np.random.default_rng(0)
    counts = [(n * s, s, c * s) for s in (1, 4, 16, 64) for n in (1, 2, 4, 8, 16) for c in (0, 64, 256, 1024)]
    return [Sample(*row, model.round_s(*row) * np.exp(noise * random.standard_normal())) for row in counts]


def fit_linear(samples):
    (term,) = fit_roofline(samples, num_terms=1).terms
    return term


def test_the_linear_model_by_hand_and_the_roofline_which_is_the_larger_term():
    assert LINEAR.round_s(10, 2, 1000) == pytest.approx(5e-3 + 3e-3 + 2e-4 + 2e-4)
    assert ROOFLINE.round_s(10, 1, 0) == 8e-3
    assert ROOFLINE.round_s(400, 1, 0) == pytest.approx(21e-3)


@pytest.mark.parametrize("model", [LINEAR, ROOFLINE, Refined(ROOFLINE), Refined()])
def test_arrays_and_numbers_agree(model):
    tokens = np.arange(1, 400, 7)
    seconds = model.round_s(tokens, 3, 500.0)
    assert np.broadcast_to(seconds, tokens.shape).tolist() == [model.round_s(int(n), 3, 500.0) for n in tokens]
    assert isinstance(model.round_s(3, 1, 0), float)
    assert model.round_s(tokens[:, None], np.arange(1, 5), 0.0).shape == (len(tokens), 4)


@pytest.mark.parametrize("truth", [LINEAR, Linear(fixed_s=5e-3, token_s=3e-4)], ids=["all", "some are zero"])
def test_made_up_coefficients_come_back_exactly_and_need_one_term(truth):
    assert fit_linear(sampled(truth)).coefficients == pytest.approx(truth.coefficients, rel=1e-6, abs=1e-15)
    assert len(fit_roofline(sampled(truth)).terms) == 1


@pytest.mark.parametrize("seed", range(4))
def test_two_terms_come_back_exactly_whatever_they_are(seed):
    random = np.random.default_rng(seed)
    read = Linear(10 ** random.uniform(-3, -2), context_s=10 ** random.uniform(-9, -7))
    compute = Linear(5e-4, *(10 ** random.uniform((-5, -6, -8), (-3.5, -4, -7))))
    truth = Roofline((read, compute))
    samples = sampled(truth)
    assert r_squared(fit_roofline(samples), samples) > 1 - 1e-9
    found = sorted(term.coefficients for term in fit_roofline(samples).terms)
    known = sorted([read.coefficients, compute.coefficients])
    assert found == [pytest.approx(term, rel=1e-4, abs=1e-9) for term in known]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_roofline_fits_no_worse_than_a_line_and_the_same_again(noise):
    samples = sampled(ROOFLINE, noise)
    assert r_squared(fit_roofline(samples), samples) > r_squared(fit_linear(samples), samples)
    assert fit_roofline(samples) == fit_roofline(samples[:])


a_sample = st.builds(Sample, st.integers(1, 500), st.integers(1, 64), st.integers(0, 10**5), st.floats(1e-6, 10.0))


@settings(max_examples=40)
@given(st.lists(a_sample, min_size=1, max_size=12))
def test_whatever_was_measured_more_is_never_quicker(samples):
    for model in (fit_linear(samples), fit_roofline(samples)):
        seconds = model.round_s(np.arange(1, 600), 4, 1000)
        assert np.isfinite(seconds).all()
        assert (np.diff(np.broadcast_to(seconds, 599)) >= 0).all()


def test_r_squared_by_hand():
    samples = [Sample(1, 1, 0, 1.0), Sample(2, 1, 0, 3.0)]
    assert r_squared(Linear(token_s=1.0), samples) == pytest.approx(1 - 1 / 2)
    assert r_squared(Linear(fixed_s=2.0), samples) == 0.0
    assert r_squared(Linear(fixed_s=-0.0, token_s=1.0), samples[:1]) == 1.0
    assert r_squared(Linear(fixed_s=2.0), samples[:1]) == 0.0


@pytest.mark.parametrize("wrong", [{"fixed_s": -1e-9}, {"token_s": float("nan")}, {"context_s": float("inf")}])
def test_an_impossible_coefficient_is_refused(wrong):
    with pytest.raises(ValueError, match="finite and not negative"):
        Linear(**wrong)


@pytest.mark.parametrize("row", [(-1, 1, 0, 1.0), (1, 1, 0, 0.0), (1, 1, 0, float("nan")), (1, 1, -2, 1.0)])
def test_an_impossible_sample_is_refused(row):
    with pytest.raises(ValueError, match="impossible"):
        Sample(*row)


def test_no_samples_and_a_time_that_is_not_a_number_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        fit_linear([])
    with pytest.raises(ValueError, match="not a number"):
        LINEAR.tokens_in(float("nan"), 1, 0)


def test_the_knee_of_a_line_is_where_drafts_cost_as_much_as_all_the_rest_and_that_of_a_roofline_beyond_its_ridge():
    assert knee(LINEAR, 1000) == int(LINEAR.round_s(8, 8, 8 * 256) / LINEAR.token_s)
    ridge = int((READ.fixed_s - COMPUTE.fixed_s) / COMPUTE.token_s)
    assert ridge < knee(ROOFLINE, 1000) < 3 * ridge


def test_the_knee_stays_within_its_bounds():
    assert knee(Linear(fixed_s=1.0), 77) == 77 - 8
    assert knee(Linear(token_s=1.0), 77) == 8
    assert knee(LINEAR, 3) == 1, "a round has room for eight sessions at least"


class Steps(CostModel):
    """Ten tokens at a time, and four seconds at most."""

    def _seconds(self, num_tokens, num_sessions, context_tokens):
        return np.minimum(4.0, 1.0 + (num_tokens + 9) // 10)


def refined(model, token_s):
    found = Refined(model)
    found.scale, found.token_s = 1.37, token_s
    return found


INVERTED = [LINEAR, ROOFLINE, refined(LINEAR, 0.0), refined(ROOFLINE, 1e-4), refined(None, 1e-4), Steps(), Refined()]


def test_the_tokens_of_a_time_by_hand():
    assert Linear(fixed_s=1.0, token_s=0.25).tokens_in(2.0, 1, 0) == 4
    assert Linear(fixed_s=1.0, token_s=0.25).tokens_in(1.99, 1, 0) == 3
    assert Linear(fixed_s=1.0, token_s=0.25, session_s=0.5).tokens_in(2.0, 1, 0) == 2
    assert Linear(fixed_s=1.0, context_s=0.1).tokens_in(0.5, 1, 0) == 0, "not even a round without tokens"
    assert Linear(fixed_s=1.0).tokens_in(2.0, 1, 0) == MOST_TOKENS, "tokens cost nothing"
    assert ROOFLINE.tokens_in(8e-3, 1, 0) == 140, "up to the ridge they cost nothing, either"
    assert ROOFLINE.tokens_in(8e-3, 1, 0, 100) == 100
    assert Steps().tokens_in(3.0, 1, 0) == 20
    assert Linear(fixed_s=1.0, token_s=0.25).tokens_in(-1.0, 1, 0) == 0


@pytest.mark.parametrize("model", INVERTED)
def test_so_many_tokens_are_within_the_time_and_one_more_is_not(model):
    random = np.random.default_rng(0)
    for _ in range(300):
        row = int(random.integers(0, 64)), int(random.integers(0, 10**5))
        seconds = model.round_s(int(10 ** random.uniform(0, 6)), *row) * random.choice([1.0, random.uniform(0.1, 2.0)])
        tokens = model.tokens_in(seconds, *row)
        assert model.round_s(tokens, *row) <= seconds or not tokens
        assert tokens == MOST_TOKENS or model.round_s(tokens + 1, *row) > seconds or model.round_s(0, *row) > seconds
