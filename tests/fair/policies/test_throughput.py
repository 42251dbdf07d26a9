"""`throughput`: the most accepted tokens in all, by hand and against every other decision."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.fair.estimators import expected_tokens
from goodspeed.fair.policies import ClientState, create


def test_tokens_go_where_they_are_likeliest_to_be_accepted():
    # 0.9 0.81 0.73 0.66 0.59 0.53 | 0.6 0.36 | 0.5, whatever the goodput
    clients = [ClientState(0.6, 0.1), ClientState(0.9, 50.0), ClientState(0.5, 0.1)]
    assert create("throughput").allocate(clients, 4) == [0, 4, 0]
    assert create("throughput").allocate(clients, 7) == [1, 6, 0]


def test_weights_count_and_equal_clients_take_turns():
    policy = create("throughput")
    assert policy.allocate([ClientState(0.5, 1.0, weight=4.0), ClientState(0.5, 1.0)], 4) == [3, 1]
    rounds = np.array([policy.allocate([ClientState(0.7, x) for x in (1.0, 2.0, 3.0)], 4) for _ in range(6)])
    assert rounds.sum(axis=0).tolist() == [8, 8, 8]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 9), st.integers(0, 5)), min_size=1, max_size=4))
def test_no_decision_has_more_expected_tokens(values):
    clients = [ClientState(alpha, goodput, max_length=cap) for alpha, goodput, cap in values]

    def total(lengths):
        return sum(expected_tokens(alpha, length) for (alpha, _, _), length in zip(values, lengths, strict=True))

    every = itertools.product(*(range(client.max_length + 1) for client in clients))
    best = max(total(lengths) for lengths in every if sum(lengths) <= 7)
    assert total(create("throughput").allocate(clients, 7)) == pytest.approx(best, rel=1e-12)
