"""Draft lengths when every round waits for every draft: by hand, then against a search over all allocations."""

from itertools import product

import numpy as np
import pytest

from goodspeed.fair import policies
from goodspeed.fair.latency import Linear, Roofline
from goodspeed.fair.policies import ClientState
from goodspeed.fair.policies.timed import MARGIN

ROUND = Linear(fixed_s=0.02)


def allocate(clients, budget, cost=ROUND, barrier=True):
    return policies.create("gradient", cost=cost, barrier=barrier).allocate(clients, budget)


def client(acceptance, draft_s, round_trip_s=0.0, goodput=1.0, **more):
    return ClientState(acceptance, goodput, draft_s_per_token=draft_s, round_trip_s=round_trip_s, **more)


def test_everybody_pays_for_the_longest_draft():
    """Rounds of 20 ms; tokens that take 5 ms each, of two clients at once, both accepted with 0.8.

    0 each: 2 / 20. 1: 3.6 / 25, 2: 4.88 / 30, 3: 5.904 / 35, 4: 6.7232 / 40, 5: 7.379 / 45; the best is 3.
    """
    assert allocate([client(0.8, 0.005)] * 2, 20) == [3, 3]


def test_the_others_draft_as_long_as_the_slowest_does():
    """A slow client's tokens are not worth the wait; the other's draft goes as far as its own wait is worth."""
    slow, quick = client(0.8, 0.1), client(0.8, 0.002)
    assert allocate([slow, quick], 20)[0] == 0
    assert allocate([slow, quick], 20)[1] > 3
    assert allocate([client(0.8, 0.002, round_trip_s=0.3), quick], 20)[0] == 0


def test_nothing_is_drafted_where_plain_decoding_is_quicker():
    assert allocate([client(0.5, 0.02), client(0.6, 0.03)], 20) == [0, 0]
    assert allocate([client(0.0, 0.0)], 20) == [0]
    assert allocate([client(0.9, 0.0)], 0) == [0]


def test_drafts_that_are_there_at_once_take_the_budget():
    assert allocate([client(0.8, 0.0), client(0.5, 0.0)], 6) == [5, 1]  # 0.8^3 > 0.5 > 0.8^4 > 0.8^5 > 0.5^2
    assert allocate([client(0.8, 0.0, max_length=2), client(0.5, 0.0)], 6) == [2, 4]


def test_equal_clients_take_turns():
    policy = policies.create("gradient", cost=ROUND, barrier=True)
    taken = [policy.allocate([client(0.9, 0.0001, max_length=1)] * 3, 2) for _ in range(6)]
    assert np.sum(taken, axis=0).tolist() == [4, 4, 4]


@pytest.mark.parametrize("seed", range(60))
def test_against_a_search_over_all_allocations(seed):
    random = np.random.default_rng(seed)
    num, budget = int(random.integers(1, 5)), int(random.integers(1, 7))
    clients = [
        ClientState(
            random.uniform(0.0, 1.0),
            random.uniform(0.5, 5.0),
            max_length=int(random.integers(0, budget + 1)),
            draft_s_per_token=random.uniform(0.0, 0.02),
            round_trip_s=random.uniform(0.0, 0.1) * random.integers(0, 2),
            context_len=int(random.integers(0, 500)),
        )
        for _ in range(num)
    ]
    reading = Linear(fixed_s=0.02, context_s=1e-6)
    cost = Roofline((reading, Linear(fixed_s=0.001, token_s=random.uniform(0.0, 0.01))))

    def rate(lengths):
        worth = sum(
            sum(each.acceptance_rate**s for s in range(length + 1)) / each.goodput
            for each, length in zip(clients, lengths, strict=True)
        )
        away = [
            each.round_trip_s + each.draft_s_per_token * length
            for each, length in zip(clients, lengths, strict=True)
            if length
        ]
        round_s = cost.round_s(num + sum(lengths), num, sum(each.context_len for each in clients))
        return worth / (round_s + max(away, default=0.0)) * (1.0 - MARGIN if any(away) else 1.0)

    given = allocate(clients, budget, cost)
    choices = product(*(range(min(each.max_length, budget) + 1) for each in clients))
    best = max(rate(lengths) for lengths in choices if sum(lengths) <= budget)
    assert sum(given) <= budget
    assert rate(given) >= 0.999 * best


def test_many_clients_are_no_worse_than_equal_lengths():
    random = np.random.default_rng(1)
    clients = [client(rate, 0.004, 0.01, goodput=3.0) for rate in random.uniform(0.5, 0.95, 200)]
    cost = Roofline((Linear(fixed_s=0.03), Linear(fixed_s=0.001, token_s=0.0001)))

    def rate(lengths):
        worth = sum(
            (1 - each.acceptance_rate ** (s + 1)) / (1 - each.acceptance_rate)
            for each, s in zip(clients, lengths, strict=True)
        )
        return worth / (cost.round_s(200 + sum(lengths), 200, 0) + (0.01 + 0.004 * max(lengths) if any(lengths) else 0))

    given = rate(allocate(clients, 800, cost))
    assert given >= max(rate([length] * 200) for length in range(5))
