"""Equal claims get equal shares over rounds, whichever clients happen to be tied."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.fair.policies import ClientState, create
from goodspeed.fair.policies.tie_breaking import TieBreaker


def test_the_turn_goes_round_and_two_sets_that_alternate_do_not_favour_anybody():
    breaker, tied = TieBreaker(), np.array([1, 4, 6])
    assert [breaker.pick(tied, 1).tolist() for _ in range(6)] == [[1], [4], [6], [1], [4], [6]]
    breaker, counts = TieBreaker(), np.zeros(4)
    for _ in range(50):
        counts[breaker.pick(np.array([0, 1]), 1)] += 1
        counts[breaker.pick(np.array([2, 3]), 1)] += 1
    assert counts.tolist() == [25, 25, 25, 25]


def states(*names: str) -> list[ClientState]:
    return [ClientState(0.5, 1.0, client_id=name) for name in names]


@pytest.mark.parametrize("name", ["fixed", "gradient"])
def test_whoever_leaves_takes_its_turns_along(name):
    policy = create(name)
    assert policy.allocate(states("a", "b", "c"), 1) == [1, 0, 0]
    assert policy.allocate(states("b", "c"), 1) == [1, 0], "not a's place behind the others"
    assert policy.allocate(states("d", "b", "c"), 1) == [0, 0, 1]


def test_each_session_of_a_client_has_turns_of_its_own():
    policy = create("fixed")
    rounds = [policy.allocate(states("a", "a", "b"), 1) for _ in range(3)]
    assert rounds == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@given(st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=2), st.integers(1, 7)), min_size=20, max_size=60))
def test_nobody_falls_behind_under_any_sequence_of_ties(ties):
    breaker, owed = TieBreaker(), np.zeros(8)
    for members, num in ties:
        tied, num = np.array(sorted(members)), min(num, len(members))
        chosen = breaker.pick(tied, num)
        assert len(set(chosen.tolist())) == num
        assert set(chosen.tolist()) <= members
        owed[tied] += num / len(tied)
        owed[chosen] -= 1
    assert np.abs(owed).max() < 3  # a random choice would stray by the square root of the number of ties


@pytest.mark.parametrize(
    ("room", "num", "lengths"),
    [
        ([9, 9, 9], 6, [2, 2, 2]), ([1, 9, 9], 7, [1, 3, 3]), ([1, 9, 9], 8, [1, 4, 3]), ([0, 9, 0], 5, [0, 5, 0]),
        ([3, 3, 3], 9, [3, 3, 3]), ([2, 2, 2], 0, [0, 0, 0]),
        ([10**12, 10**12], 10**12 + 1, [5 * 10**11 + 1, 5 * 10**11]),
    ],
)  # fmt: skip
def test_tokens_are_shared_as_evenly_as_room_allows(room, num, lengths):
    assert TieBreaker().share(np.array(room), num).tolist() == lengths
