"""The two baselines of the paper: fixed and random."""

import numpy as np

from goodspeed.fair.policies import ClientState, create


def clients(*max_lengths: int) -> list[ClientState]:
    return [ClientState(0.5, 1.0, max_length=length) for length in max_lengths]


def test_fixed_lets_the_remainder_go_round():
    policy = create("fixed")
    rounds = np.array([policy.allocate(clients(*[99] * 8), 27) for _ in range(8)])
    assert rounds.sum(axis=1).tolist() == [27] * 8
    assert rounds.sum(axis=0).tolist() == [27] * 8
    assert set(rounds.ravel().tolist()) == {3, 4}


def test_fixed_keeps_to_a_max_length_and_gives_only_the_remainder_to_whom_there_is_room():
    assert create("fixed").allocate(clients(0, 2, 99, 99), 16) == [0, 2, 4, 4]
    policy = create("fixed")
    rounds = np.array([policy.allocate(clients(2, 99, 2, 99), 9) for _ in range(2)])
    assert rounds.sum(axis=0).tolist() == [4, 5, 4, 5]


def test_random_depends_on_its_seed_alone():
    def lengths(seed: int) -> list[list[int]]:
        policy = create("random", seed=seed)
        return [policy.allocate(clients(*[99] * 8), 28) for _ in range(5)]

    assert lengths(1) == lengths(1) != lengths(2)


def test_every_decision_within_the_budget_is_equally_likely():
    policy = create("random", seed=3)
    rounds = [tuple(policy.allocate(clients(9, 9), 2)) for _ in range(6000)]
    assert set(rounds) == {(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)}
    counts = np.array([rounds.count(decision) for decision in set(rounds)])
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5  # chi-square, 5 degrees of freedom, p = 0.001
