"""Orders in simulated worlds with hardly any memory: texts stay exact, all end, and order is worth its while."""

from dataclasses import replace
from random import Random
from statistics import mean

import pytest

from experiments.simulation.arrivals import Arrival, dealt_out
from experiments.simulation.checking.worlds import TINY_POOL, some_settings
from experiments.simulation.faults import play
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from verify_node.scheduler.preempt import Contention

ORDERS = ("fcfs", "las", "sjf", "laps")
SLOW = Linear(fixed_s=0.1, token_s=0.01)
"""Rounds in which turns come to their end."""


@pytest.mark.thorough
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cost", [Settings.round_cost, SLOW], ids=["quick", "slow"])
def test_every_text_is_the_targets_and_ends_whatever_befalls(order: str, cost: Linear) -> None:
    """The pool holds one longest text. `play` validates the verify node after every event, and Unfinished is found."""
    for seed in range(8):
        world, found = play(seed, replace(some_settings(seed), order=order, round_cost=cost, **TINY_POOL))
        assert found.what == [], f"seed {seed}"
        assert world.num_left == 0


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["las", "laps"])
def test_memory_is_taken_for_growth_and_for_waiters(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In those worlds both happen, so they try both."""
    gave_way = {"serve_holders": 0, "admit": 0}

    def watch(name: str) -> None:
        method = getattr(Contention, name)

        def watched(self: Contention) -> None:
            num_before = len(self.preempt)
            method(self)
            gave_way[name] += len(self.preempt) - num_before

        monkeypatch.setattr(Contention, name, watched)

    for name in gave_way:
        watch(name)
    for seed in range(13):
        play(seed, replace(some_settings(seed), order=order, round_cost=SLOW, **TINY_POOL))
    assert gave_way["serve_holders"] > 10
    assert gave_way["admit"] > 0


# -- what it brings ----------------------------------------------------------------------------------------------------


def requests(per_second: float, seconds: float, seed: int) -> list[Arrival]:
    """Three of four texts have 20 to 60 tokens, the fourth 200 to 400, each kind of clients of its own."""
    rng, at = Random(f"requests{seed}"), 0.0
    found: list[Arrival] = []
    while (at := at + rng.expovariate(per_second)) < seconds:
        num_tokens = rng.randint(200, 400) if len(found) % 4 == 3 else rng.randint(20, 60)
        acceptance = Independent(rng.choice([0.3, 0.6, 0.9]))
        found.append(Arrival(at, rng.randint(20, 100), num_tokens, acceptance))
    return found


def mean_s(order: str, seed: int) -> float:
    """From the request to the last token, with a pool of 960 tokens that is asked for too much for 30 seconds."""
    settings = Settings(
        num_clients=4,
        stops=0.0,
        round_cost=Linear(fixed_s=0.03, token_s=0.001, session_s=0.0002),
        known_cost=True,
        max_round_tokens=256,
        num_pages=60,
        page_size=16,
        context_len=600,
        max_sessions=10_000,
        latency_s=(0.005,),
        arrivals=dealt_out(requests(2.0, 30.0, seed), 4),
        order=order,
    )
    world = World(1, settings)
    world.run(2_000.0)
    times = [one.times for draft in world.drafts for one in draft.done]
    return mean(one.last_at - one.asked_at for one in times if one.last_at is not None)


@pytest.mark.thorough
def test_texts_are_done_sooner_on_average_where_those_go_first_that_are_done_soonest() -> None:
    """In three worlds together: alone one may have luck with its requests."""
    laps, fcfs = (mean(mean_s(order, seed) for seed in range(3)) for order in ("laps", "fcfs"))
    assert laps < 0.9 * fcfs
