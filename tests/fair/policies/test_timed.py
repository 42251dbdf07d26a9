"""`create("gradient", cost=...)`: what is drafted earns its time. By hand, then against a search over everything."""

import itertools
import random

import numpy as np
import pytest

from goodspeed.errors import ConfigError
from goodspeed.fair.estimators import expected_tokens
from goodspeed.fair.latency import CostModel, Linear, Roofline
from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.timed import MARGIN

FORWARD = Linear(fixed_s=0.0065, token_s=0.00032)  # a 13M target on one CPU thread
FLAT_THEN_STEEP = Roofline((Linear(fixed_s=0.007), Linear(fixed_s=0.002, token_s=0.0009)))


def rate(clients: list[ClientState], lengths: tuple[int, ...] | list[int], cost: CostModel) -> float:
    """F, written down once more, session by session: worth of the expected tokens per second."""
    together = list(zip(clients, lengths, strict=True))

    def away_s(client: ClientState, length: int, round_s: float) -> float:
        drafting_s = client.round_trip_s + client.draft_s_per_token * length if length else 0.0
        if not drafting_s:
            return 0.0
        return drafting_s + max(round_s - drafting_s, round_s / 2) * (1 - 1 / len(clients))

    round_s = 0.01
    for _ in range(60):
        cycles = [round_s + away_s(client, length, round_s) for client, length in together]
        between_s = max(round_s, 1 / sum(1 / cycle for cycle in cycles))
        shares = [min(between_s / cycle, 1.0) for cycle in cycles]
        num_tokens = sum(share * (1 + length) for share, length in zip(shares, lengths, strict=True))
        context_tokens = sum(share * client.context_len for share, client in zip(shares, clients, strict=True))
        round_s = cost.round_s(num_tokens, sum(shares), context_tokens)
    margin = MARGIN * (1 - 1 / len(clients))
    waits = any(client.round_trip_s or client.draft_s_per_token for client in clients)
    return sum(
        (1 - margin if waits and length else 1)
        * client.weight
        / client.goodput
        * expected_tokens(client.acceptance_rate, length)
        / (round_s + away_s(client, length, round_s))
        for client, length in together
    )


def best(clients: list[ClientState], budget: int, cost: CostModel) -> float:
    """Returns the best rate by trying every allocation."""
    every = itertools.product(*(range(min(client.max_length, budget) + 1) for client in clients))
    return max(rate(clients, lengths, cost) for lengths in every if sum(lengths) <= budget)


def draw(rng: random.Random, *, waits: bool) -> tuple[list[ClientState], int, CostModel]:
    num_clients = rng.randint(1, 4)
    budget = rng.randint(1, 6 if num_clients > 2 else 12)
    token_s = rng.choice([0.00005, 0.00032, 0.001])
    cost: CostModel = rng.choice([Linear(0.0065, token_s, 0.0001, 1e-6), FLAT_THEN_STEEP])
    clients = [
        ClientState(
            acceptance_rate=rng.uniform(0.2, 0.98),
            goodput=rng.uniform(0.5, 5.0),
            weight=rng.choice([1.0, 1.0, 2.0]),
            max_length=rng.choice([budget, 3]),
            context_len=rng.choice([0, 500]),
            draft_s_per_token=rng.choice([0.0, 0.0005, 0.002]) if waits else 0.0,
            round_trip_s=rng.choice([0.0, 0.001, 0.005, 0.02]) if waits else 0.0,
        )
        for _ in range(num_clients)
    ]
    return clients, budget, cost


def allocate(clients: list[ClientState], budget: int, cost: CostModel) -> list[int]:
    lengths = create("gradient", cost=cost).allocate(clients, budget)
    assert sum(lengths) <= budget
    assert all(0 <= length <= client.max_length for length, client in zip(lengths, clients, strict=True))
    return lengths


def test_one_session_drafts_as_long_as_it_pays_by_hand():
    # tokens / ms: 1 / 10 = .1, 1.5 / 11 = .136, 1.75 / 12 = .146, 1.875 / 13 = .144
    cost = Linear(fixed_s=0.009, token_s=0.001)
    assert allocate([ClientState(0.5, 1.0)], 10, cost) == [2]
    # with 1 ms of drafting a token: 1 / 10 = .1, 1.5 / 12 = .125, 1.75 / 14 = .125, 1.875 / 16 = .117
    assert allocate([ClientState(0.5, 1.0, draft_s_per_token=0.0011)], 10, cost) == [1]


def test_nothing_is_drafted_where_it_does_not_pay():
    # 1 / 2 ms alone; 1.3 tokens in 4 ms with one drafted token, and less with more
    cost = Linear(fixed_s=0.0, token_s=0.002)
    assert allocate([ClientState(0.3, 1.0), ClientState(0.3, 2.0)], 10, cost) == [0, 0]
    # a round trip of 100 ms for at most 11 tokens, when plain decoding gives one in 6.8 ms
    assert allocate([ClientState(0.99, 1.0, round_trip_s=0.1)], 10, FORWARD) == [0]


def test_a_round_trip_is_worth_a_long_draft_or_none():
    near, far = ClientState(0.9, 1.0, round_trip_s=0.0), ClientState(0.9, 1.0, round_trip_s=0.01)
    assert 0 < allocate([near], 20, FORWARD)[0] < allocate([far], 20, FORWARD)[0]


def test_who_drafts_well_drafts_and_who_does_not_decodes_plainly():
    clients = [ClientState(0.95, 1.0, draft_s_per_token=0.0005), ClientState(0.1, 1.0, draft_s_per_token=0.0005)]
    good, poor = allocate(clients, 24, FORWARD)
    assert good > 3
    assert poor == 0


def test_the_knee_of_a_roofline_is_used_up_and_not_passed():
    # seven tokens are as quick as one, each further one takes 1 ms; two of them are the sessions' own
    cost = Roofline((Linear(fixed_s=0.007), Linear(token_s=0.001)))
    # tokens / ms: 3.92 / 7 = .56 with 4 drafted, 4.14 / 7 = .59 with 5, 4.35 / 8 = .54 with 6
    assert sorted(allocate([ClientState(0.6, 1.0), ClientState(0.6, 1.0)], 24, cost)) == [2, 3]


def test_a_free_token_is_drafted_up_to_the_budget():
    lengths = allocate([ClientState(0.8, 1.0), ClientState(0.8, 1.0)], 7, Linear(fixed_s=0.01))
    assert sum(lengths) == 7
    assert lengths == create("gradient").allocate([ClientState(0.8, 1.0), ClientState(0.8, 1.0)], 7)


def test_equals_take_turns():
    policy = create("gradient", cost=Linear(fixed_s=0.01))
    clients = [ClientState(0.8, 1.0), ClientState(0.8, 1.0), ClientState(0.8, 1.0)]
    sums = np.sum([policy.allocate(clients, 4) for _ in range(30)], axis=0)
    assert sums.tolist() == [40, 40, 40]


@pytest.mark.parametrize("seed", range(60))
def test_exact_where_nobody_waits(seed):
    clients, budget, cost = draw(random.Random(seed), waits=False)
    assert rate(clients, allocate(clients, budget, cost), cost) == pytest.approx(best(clients, budget, cost), rel=1e-9)


@pytest.mark.thorough
def test_near_where_drafts_take_time():
    """The choice is not exact: tokens are tried in one order, and shares of rounds lag a step behind. Over 3,000 such
    cases the worst was 0.86 of the best, the mean 0.9989, and 93 % were the best."""
    found = []
    for seed in range(120):
        clients, budget, cost = draw(random.Random(seed), waits=True)
        found.append(rate(clients, allocate(clients, budget, cost), cost) / best(clients, budget, cost))
    assert min(found) > 0.85
    assert sum(found) / len(found) > 0.997


def test_never_worse_than_no_drafts():
    for seed in range(300):
        clients, budget, cost = draw(random.Random(1000 + seed), waits=True)
        lengths = allocate(clients, budget, cost)
        assert rate(clients, lengths, cost) >= rate(clients, [0] * len(clients), cost) * (1 - 1e-12)


@pytest.mark.thorough
def test_many_clients_and_the_best_number_among_hundreds():
    rng = random.Random(0)
    clients = [ClientState(rng.uniform(0.3, 0.95), rng.uniform(1, 6), max_length=32) for _ in range(300)]
    lengths = allocate(clients, 2000, FORWARD)
    plain = create("gradient")
    tried = [rate(clients, plain.allocate(clients, num), FORWARD) for num in range(1, 400)]
    assert rate(clients, lengths, FORWARD) == pytest.approx(max(tried), rel=1e-12)


def test_what_was_found_last_only_begins_the_next_search():
    policy = create("gradient", cost=FORWARD)
    for seed in range(50):
        clients, budget, _ = draw(random.Random(seed), waits=True)
        again = rate(clients, policy.allocate(clients, budget), FORWARD)
        assert again >= 0.85 * best(clients, budget, FORWARD)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"draft_s_per_token": -1.0}, "draft_s_per_token is -1.0 for client 0; it must be 0 or more"),
        ({"round_trip_s": float("nan")}, "round_trip_s is nan"),
        ({"context_len": -3}, "context_len is -3.0"),
        ({"goodput": 0.0}, "goodput is 0.0"),
    ],
)
def test_a_value_out_of_range_is_named(change, said):
    with pytest.raises(ConfigError, match=said):
        create("gradient", cost=FORWARD).allocate([ClientState(**{"acceptance_rate": 0.5, "goodput": 1.0} | change)], 4)


def test_nobody_and_no_budget():
    policy = create("gradient", cost=FORWARD)
    assert policy.allocate([], 5) == []
    assert policy.allocate([ClientState(0.5, 1.0)], 0) == [0]
    assert policy.allocate([ClientState(0.0, 1.0), ClientState(0.5, 1.0, weight=0.0)], 5) == [0, 0]
    assert sum(policy.allocate([ClientState(1.0, 1.0)], 5)) == 5


def test_a_longer_draft_behind_a_dip_is_not_taken_for_a_gain():
    # 25 ms away, 5 ms a token, rounds of 11 ms: five tokens are just made ahead in time, six are not. By hand all at 5
    # make 7,740 tokens/s, all at 17 make 6,700; the steps from 6 to 17 alone, without the fall before them, look well.
    cost = Roofline((Linear(fixed_s=0.0105, session_s=0.00005), Linear(token_s=0.00005, session_s=0.00005)))
    clients = [
        ClientState(0.97, 1.0, draft_s_per_token=0.005, round_trip_s=0.025, ahead=0.95, max_length=24, context_len=300)
        for _ in range(64)
    ]
    assert max(allocate(clients, 24 * 64, cost)) <= 5
