"""The policy `slo`: floors for what texts are owed, and `gradient` under them, against every possible sharing."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goodspeed.fair.latency import Linear
from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.slo import least_lengths, quickest, shortest


def client(alpha=0.5, goodput=1.0, slo=None, **changes):
    return ClientState(alpha, goodput, slo=slo, **changes)


def allocate(clients, budget):
    return create("slo").allocate(clients, budget)


@pytest.mark.parametrize(("owed", "length"), [(1.0, 0), (1.4, 1), (1.5, 1), (1.6, 2), (1.75, 2), (1.9, 4), (2.5, 8)])
def test_the_shortest_draft_that_is_expected_to_bring_what_is_owed(owed, length):
    assert shortest(owed, 0.5, 8) == length


def test_without_objectives_it_is_gradient():
    clients = [client(0.9, 2.0), client(0.4, 1.0), client(0.7, 3.0)]
    assert allocate(clients, 9) == create("gradient").allocate(clients, 9)


def test_who_is_owed_nothing_more_than_a_token_gets_what_gradient_gives():
    clients = [client(0.9, 2.0, slo=0.4), client(0.4, 1.0, slo=1.0)]
    assert allocate(clients, 9) == create("gradient").allocate(clients, 9)


def test_what_is_owed_comes_first():
    clients = [client(0.2, 9.0, slo=1.2), client(0.9, 0.1), client(0.9, 0.1), client(0.9, 0.1)]
    assert create("gradient").allocate(clients, 8)[0] == 0
    assert allocate(clients, 8)[0] == 1
    assert sum(allocate(clients, 8)) == 8, "what is left is shared out as ever"


def test_nobodys_floor_is_more_than_its_weights_part():
    clients = [client(0.9, slo=99.0), client(0.9), client(0.9), client(0.9)]
    assert least_lengths(clients, 8) == [2, 0, 0, 0]
    heavy = [client(0.9, slo=99.0, weight=3.0), client(0.9), client(0.9), client(0.9)]
    assert least_lengths(heavy, 8) == [4, 0, 0, 0]


def test_a_clients_sessions_share_its_part():
    clients = [client(0.9, slo=99.0, client_id="a") for _ in range(7)] + [client(0.9, slo=99.0, client_id="b")]
    floors = least_lengths(clients, 24)
    assert (sum(floors[:7]), floors[7]) == (12, 12)


def test_with_more_clients_than_budget_some_get_one_token():
    assert least_lengths([client(0.9, slo=9.0) for _ in range(6)], 4) == [1, 1, 1, 1, 0, 0]


def test_a_session_that_must_not_draft_has_no_floor():
    assert least_lengths([client(0.9, slo=9.0, max_length=0), client()], 8) == [0, 0]


@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.5, 0.8]), st.sampled_from([0.5, 2.0]), st.sampled_from([None, 1.3, 2.0])),
        max_size=3,
    ),
    st.integers(0, 6),
)
@example(rows=[(0.1, 2.0, None), (0.1, 2.0, None), (0.1, 2.0, 1.3)], budget=2)
def test_it_is_the_best_sharing_in_which_nobody_gets_less_than_the_floor(rows, budget):
    clients = [client(*row) for row in rows]
    floors = least_lengths(clients, budget)

    def gain(lengths):
        return sum(
            one.acceptance_rate**step / one.goodput
            for one, length in zip(clients, lengths, strict=True)
            for step in range(1, length + 1)
        )

    lengths = allocate(clients, budget)
    assert sum(lengths) <= budget
    assert all(length >= floor for length, floor in zip(lengths, floors, strict=True))
    every = product(*(range(floor, budget + 1) for floor in floors))
    best = max((gain(one) for one in every if sum(one) <= budget), default=0.0)
    assert gain(lengths) == pytest.approx(best)


def test_the_quickest_draft_by_hand():
    """With a round of 10 ms and 1 ms a token: 1 / 10, 1.5 / 11, 1.75 / 12, 1.875 / 13 tokens a millisecond."""
    quick = client(0.5, draft_s_per_token=0.001)
    assert quickest(quick, 8, 0.01) == 2
    assert quickest(quick, 1, 0.01) == 1
    assert quickest(client(0.5, draft_s_per_token=0.01), 8, 0.01) == 0
    assert quickest(client(0.5, draft_s_per_token=0.001, round_trip_s=0.1), 8, 0.01) == 0


@given(st.floats(0.0, 0.99), st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.floats(0.001, 0.1), st.integers(0, 30))
def test_no_length_is_quicker(alpha, step_s, round_trip_s, round_s, most):
    one = client(alpha, draft_s_per_token=step_s, round_trip_s=round_trip_s)
    rates = [1.0 / round_s] + [
        sum(alpha**k for k in range(length + 1)) / (round_s + round_trip_s + length * step_s)
        for length in range(1, most + 1)
    ]
    assert rates[quickest(one, most, round_s)] >= (1.0 - 1e-9) * max(rates)


def test_a_text_that_no_draft_can_help_does_not_draft_for_ever():
    """It is owed 99 tokens; without a model of time it would draft all of its share."""
    late = client(0.8, slo=99.0, draft_s_per_token=0.01)
    assert least_lengths([late], 60) == [60]
    assert least_lengths([late], 60, round_s=0.05) == [quickest(late, 60, 0.05)]
    assert create("slo", cost=Linear(fixed_s=0.05)).allocate([late], 60)[0] < 10


def test_where_all_wait_for_the_longest_draft_no_need_makes_it_longer():
    clients = [client(0.6, draft_s_per_token=0.01) for _ in range(7)] + [client(0.95, slo=9.0, draft_s_per_token=0.01)]
    cost = Linear(fixed_s=0.02, token_s=0.001)
    longest = max(create("gradient", cost=cost, barrier=True).allocate(clients, 40))
    assert max(create("slo", cost=cost, barrier=True).allocate(clients, 40)) == longest
    assert max(create("slo", cost=cost).allocate(clients, 40)) > longest
