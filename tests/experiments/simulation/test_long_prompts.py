"""A long prompt in a simulated world: how long the other users wait, by their verdicts, and how long its own user."""

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from experiments.simulation.arrivals import Arrival
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear

AT_S = 5.0  # when the prompt comes
CPU = Linear(fixed_s=0.04, token_s=0.002)
LONG = 2000
ROOM: dict[str, Any] = {"max_round_tokens": 512, "num_pages": 1000, "page_size": 16, "context_len": 4000}
SETTINGS = Settings(num_clients=3, stops=0.0, round_cost=CPU, latency_s=(0.005,), **ROOM)
STREAM = Arrival(0.0, 10, 1000, Independent(0.7))
PROMPT = Arrival(AT_S, LONG, 5, Independent(0.7))


def world(arrivals: tuple[tuple[Arrival, ...], ...], **changes: Any) -> World:
    return World(1, replace(SETTINGS, arrivals=arrivals, num_clients=len(arrivals), **changes))


@pytest.mark.parametrize("changes", [{}, {"known_cost": True}, PAPER], ids=["no profile", "a profile", "paper"])
def test_others_wait_three_times_as_long_at_most_while_a_long_prompt_is_prefilled(changes: dict[str, Any]) -> None:
    at: dict[int, list[float]] = {0: [], 1: []}
    tried = world(((STREAM,), (STREAM,), (PROMPT,)), **changes)

    def note(done: Any) -> None:
        for client, times in at.items():
            own = {one.session.request.session_id for one in tried.drafts[client].generations.values()}
            times.extend(done.started + done.duration_s for verdict in done.verdicts if verdict.session_id in own)

    tried.on_round = note
    tried.settle(AT_S)
    while not tried.drafts[2].done:
        tried.settle(1.0)
    begun = tried.drafts[2].done[0].times.first_at
    assert begun is not None
    gaps = [(later, later - before) for times in at.values() for before, later in pairwise(times)]
    usual_s = median(gap for later, gap in gaps if 2.0 < later < AT_S)
    assert median(gap for later, gap in gaps if AT_S < later <= begun) <= 3.0 * usual_s
    longest = 3.0 if changes is PAPER else 2.25
    assert begun - AT_S <= longest * LONG * CPU.token_s, "half of the time, less what rounds wait: up to a quarter"


def test_alone_a_prompt_is_prefilled_in_whole_chunks() -> None:
    alone = world(((PROMPT,),))
    alone.run(100.0)
    begun = alone.drafts[0].done[0].times.first_at
    assert begun is not None
    assert begun - AT_S <= CPU.round_s(LONG, 0, 0) + 7 * CPU.fixed_s + 0.1, "eight rounds of 256"
