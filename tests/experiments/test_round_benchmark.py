"""The benchmark of a round: every client takes part in every round, and a second run is the same."""

import pytest

from experiments.benchmarks import round as benchmark
from experiments.benchmarks.nodes.recorded import Recording, clients
from goodspeed.engine import checkpoints
from goodspeed.wire.messages import Sampling

NUM_CLIENTS, NUM_ROUNDS = 3, 6


@pytest.fixture(scope="module")
def target():
    return checkpoints.load("tiny-target")


@pytest.fixture(scope="module")
def recording():
    return Recording.empty()


def players(recording, max_tokens=200):
    return clients(recording, Sampling(temperature=1.0), NUM_CLIENTS, max_tokens)


@pytest.mark.thorough
def test_all_clients_take_part_again_and_again_and_a_second_run_is_the_same(target, recording):
    runs = [benchmark.staged(target, players(recording), NUM_ROUNDS) for _ in range(2)]
    for played in runs:
        assert [each.is_full for each in played] == [False] + [True] * (NUM_ROUNDS - 1)  # the first has the prompts
        assert all(each.num_drafted == benchmark.BUDGET for each in played[1:])
    assert [each.num_accepted for each in runs[0]] == [each.num_accepted for each in runs[1]]
    found = benchmark.summary(runs)
    assert (found["num_rounds"], found["num_drafted"]) == (NUM_ROUNDS - 1, benchmark.BUDGET)
    assert all(found["parts_s"][part] > 0 for part in benchmark.PARTS)
    assert 0 < found["overhead"] < 1


def test_a_round_that_cannot_start_says_for_whom_it_waits(target, recording):
    with pytest.raises(RuntimeError, match=r"cannot start: of 3 sessions 0 wait for a draft and 3 are finished"):
        benchmark.staged(target, players(recording, max_tokens=1), 2)
