"""Orders in simulated worlds with hardly any memory: texts stay exact, and all end."""

from dataclasses import replace

import pytest

from experiments.simulation.checking.worlds import TINY_POOL, some_settings
from experiments.simulation.faults import play
from experiments.simulation.settings import Settings
from goodspeed.fair.round_time import Linear

ORDERS = ("fcfs", "las", "sjf", "laps")
SLOW = Linear(fixed_s=0.1, token_s=0.01)  # rounds in which turns come to their end


@pytest.mark.thorough
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cost", [Settings.round_cost, SLOW], ids=["quick", "slow"])
def test_every_text_is_the_targets_and_ends_whatever_befalls(order: str, cost: Linear) -> None:
    """The pool holds one longest text. `play` validates the verify node after every event, and Unfinished is found."""
    num_preempted = 0
    for seed in range(8):
        world, found = play(seed, replace(some_settings(seed), order=order, round_cost=cost, **TINY_POOL))
        assert found.what == [], f"seed {seed}"
        assert world.num_left == 0
        num_preempted += world.verify.core.counts.num_preempted
    assert num_preempted > 0, "memory is taken in these worlds"
