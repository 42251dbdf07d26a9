"""Eq. (5) solved exactly: by hand, against a full sort, and against an integer program."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goodspeed.errors import ConfigError
from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.gradient import allocate_arrays
from goodspeed.fair.policies.price import largest_terms

rates = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-300, 0.5, 0.9, 1 - 1e-16, 1.0]))
goodputs = st.one_of(st.floats(0.01, 100), st.sampled_from([1.0, 2.0]))
weights = st.one_of(st.just(1.0), st.floats(0, 10))
fairnesses = st.sampled_from([0.0, 0.5, 1.0, 2.0])


def states(largest_cap: int) -> st.SearchStrategy[ClientState]:
    return st.builds(ClientState, rates, goodputs, weights, st.integers(0, largest_cap))


def objective(clients: list[ClientState], lengths: list[int], fairness: float = 1.0) -> float:
    return math.fsum(
        client.weight * client.goodput**-fairness * client.acceptance_rate**place
        for client, length in zip(clients, lengths, strict=True)
        for place in range(length + 1)
    )


def gains(client: ClientState, fairness: float, length: int) -> list[float]:
    """Logarithms of the marginal gains of tokens 1 .. length, as the policy defines them."""
    if client.acceptance_rate == 0.0 or client.weight == 0.0:
        return []
    level = np.log(client.weight) - fairness * np.log(client.goodput)
    return [float(level + s * np.log(client.acceptance_rate)) for s in range(1, length + 1)]


def test_the_tokens_go_where_they_are_worth_most():
    # worth by token: 0.8 0.64 0.51 0.41 0.33 | 0.45 0.41 0.36 ... (twice the goodput) | 0.3 0.09
    clients = [ClientState(0.8, 1.0), ClientState(0.9, 2.0), ClientState(0.3, 1.0)]
    assert create("gradient").allocate(clients, 4) == [3, 1, 0]
    assert create("gradient").allocate(clients, 6) == [4, 2, 0]


def test_fairness_zero_ignores_goodput_and_a_larger_one_helps_the_poor():
    clients = [ClientState(0.8, 4.0), ClientState(0.6, 1.0)]
    lengths = [create("gradient", fairness=fairness).allocate(clients, 8) for fairness in (0.0, 1.0, 4.0)]
    assert lengths[0] == [6, 2]
    assert lengths[0][1] < lengths[1][1] < lengths[2][1]


def test_what_gains_exactly_nothing_gets_nothing_and_gains_too_small_for_floats_are_still_told_apart():
    clients = [ClientState(0.0, 1.0, max_length=5), ClientState(0.5, 1.0, 0.0, 5), ClientState(0.5, 1.0, 1.0, 5)]
    assert create("gradient").allocate(clients, 100) == [0, 0, 5]
    assert create("gradient").allocate(clients, 3) == [0, 0, 3]
    clients = [ClientState(0.01, 1.0), ClientState(0.01, 1.5), ClientState(0.0001, 1.0)]
    assert create("gradient").allocate(clients, 1000) == [400, 400, 200]  # 0.01^400 underflows


@given(clients=st.lists(states(40), min_size=1, max_size=30), budget=st.integers(0, 300), fairness=fairnesses)
@example(clients=[ClientState(1.0, 1.0)] * 3, budget=20000, fairness=1.0)
@example(clients=[ClientState(1 - 1e-16, 8.0), ClientState(1.0, 8.0)], budget=50_000, fairness=1.0)
def test_the_gains_taken_are_exactly_the_largest(clients, budget, fairness):
    lengths = create("gradient", fairness=fairness).allocate(clients, budget)
    everything = (gains(client, fairness, min(client.max_length, budget)) for client in clients)
    taken = (gains(client, fairness, length) for client, length in zip(clients, lengths, strict=True))
    best = sorted(itertools.chain.from_iterable(everything), reverse=True)[:budget]
    assert sorted(itertools.chain.from_iterable(taken), reverse=True) == best


@pytest.mark.parametrize("fairness", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_an_integer_program_finds_nothing_better(seed, fairness):
    """Eq. (5) as it stands: expected tokens by whole lengths, of which each client takes one."""
    random = np.random.default_rng(seed)
    columns = random.uniform(0.05, 0.99, 6), random.uniform(1.0, 5.0, 6), random.choice([0.5, 1.0, 3.0], 6)
    clients = [ClientState(*row) for row in zip(*columns, random.integers(0, 9, 6).tolist(), strict=True)]
    budget = sum(client.max_length for client in clients) // 2
    lengths = create("gradient", fairness=fairness).allocate(clients, budget)
    worth = np.array([[objective([one], [length], fairness) for length in range(9)] for one in clients])
    allowed = np.array([[length <= client.max_length for length in range(9)] for client in clients])
    chosen = cp.Variable(worth.shape, boolean=True)  # [clients, lengths]
    within = cp.sum(chosen @ np.arange(9)) <= budget
    limits = [within, cp.sum(chosen, axis=1) == 1, chosen <= allowed.astype(float)]
    best = cp.Problem(cp.Maximize(cp.sum(cp.multiply(worth, chosen))), limits).solve(solver=cp.HIGHS)
    assert objective(clients, lengths, fairness) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["spread", "near certainty", "all alike", "certain"])
def test_narrowing_the_price_over_many_clients_is_exact(seed, kind):
    random, num = np.random.default_rng(seed), 5000
    acceptance = {
        "spread": random.uniform(0, 1, num),
        "near certainty": 1 - random.uniform(0, 1, num) ** 20,
        "all alike": np.full(num, 0.7),
        "certain": np.ones(num),
    }[kind]
    goodput = np.full(num, 2.0) if kind == "all alike" else random.integers(1, 6, num).astype(float)
    caps, budget = random.integers(0, 60, num), 20_000
    lengths = allocate_arrays(acceptance, goodput, np.ones(num), caps, budget)
    assert lengths.sum() == budget
    level, slope = -np.log(goodput), np.log(acceptance)
    last, following = level + lengths * slope, level + (lengths + 1) * slope
    assert last[lengths > 0].min() >= following[lengths < caps].max()  # nothing left is worth more than anything taken


def test_terms_too_flat_to_divide_by_are_counted_exactly():
    level, slope = np.array([30.0, 30.0, 3.0]), np.array([-3e-16, -1e-18, -1e-17])
    caps, num = np.array([40_000, 30_000, 20_000]), 55_000
    above, tied = largest_terms(level, slope, caps, num)
    terms = [a + np.arange(1, cap + 1) * b for a, b, cap in zip(level, slope, caps, strict=True)]
    price = np.sort(np.concatenate(terms))[-num]
    assert above.tolist() == [(term > price).sum() for term in terms]
    assert tied.tolist() == [(term == price).sum() for term in terms]


def test_equal_clients_take_turns_and_so_do_certain_ones():
    policy = create("gradient")
    rounds = np.array([policy.allocate([ClientState(0.7, 2.0)] * 8, 28) for _ in range(20)])
    assert set(rounds.ravel().tolist()) == {3, 4}
    assert rounds.sum(axis=1).tolist() == [28] * 20
    assert rounds.sum(axis=0).tolist() == [70] * 8
    policy, certain = create("gradient"), ClientState(1.0, 2.0)
    clients = [certain, ClientState(1.0, 2.0, max_length=1), certain, ClientState(0.9, 2.0)]
    assert policy.allocate(clients, 8) == [4, 1, 3, 0]
    assert policy.allocate(clients, 8) == [3, 1, 4, 0]


@given(clients=st.lists(states(20), max_size=20), budget=st.integers(0, 100), fairness=fairnesses)
def test_the_array_form_equals_the_list_form(clients, budget, fairness):
    rows = np.array([(c.acceptance_rate, c.goodput, c.weight) for c in clients]).reshape(-1, 3)
    caps = np.array([c.max_length for c in clients], dtype=np.int64)
    lengths = allocate_arrays(rows[:, 0], rows[:, 1], rows[:, 2], caps, budget, fairness)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == create("gradient", fairness=fairness).allocate(clients, budget)


@pytest.mark.parametrize(
    ("field", "value"),
    [("acceptance_rate", v) for v in (-0.1, 1.1, math.nan)]
    + [("goodput", v) for v in (0.0, -1.0, math.nan, math.inf)]
    + [("weight", v) for v in (-1.0, math.nan, math.inf)],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    wrong = ClientState(**({"acceptance_rate": 0.5, "goodput": 1.0} | {field: value}))
    with pytest.raises(ConfigError, match=f"{field} is .* client 1"):
        create("gradient").allocate([ClientState(0.5, 1.0), wrong], 4)
