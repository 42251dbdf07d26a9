"""The simulated world: the same seed gives the same trace, and time passes as the settings say."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.world import World
from goodspeed.fair.policies import ClientState
from goodspeed.fair.round_time import Linear

SMALL = Settings(num_clients=3, num_at_once=1, min_tokens=100, max_tokens=100, stops=0.0, context_len=200)
BARRIER = replace(SMALL, num_clients=2, num_sessions=1, policy="fixed", budget=4, **PAPER)


def trace(seed, settings):
    rounds: list[Finished] = []
    world = World(seed, settings, rounds.append)
    world.run(1000.0)
    return world, rounds


def test_the_same_seed_gives_the_same_trace():
    noisy = replace(SMALL, round_noise=0.2)
    (_, first), (_, again), (_, other) = (trace(seed, noisy) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_round_waits_for_the_slowest_under_barrier_rounds():
    """Down, two steps to draft, the first of which catches up, too, up: 0.5 + 2 x 0.1 + 0.5 s."""
    settings = replace(BARRIER, latency_s=(0.01, 0.5), draft_cost=(Linear(fixed_s=0.1),))
    _, rounds = trace(1, settings)
    drafted = [finished for finished in rounds if finished.round.num_drafted == 4]
    middle = [finished.waited_s for finished in drafted[5:-5]]  # both draft, neither of them at the end of its text
    assert len(middle) > 5
    assert middle == pytest.approx([1.2] * len(middle))
    cost = settings.round_cost
    for finished in drafted:
        planned = finished.round
        expected = cost.round_s(planned.num_tokens, len(planned.entries), planned.context_tokens)
        assert finished.duration_s == expected


def test_a_policy_gets_each_clients_weight() -> None:
    seen: dict[str, set[float]] = {}

    class Notes:
        def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
            for client in clients:
                seen.setdefault(client.client_id, set()).add(client.weight)
            return [0] * len(clients)

    trace(1, replace(SMALL, policy=Notes, weight=(4.0, 1.0)))
    assert seen == {"client-0": {4.0}, "client-1": {1.0}, "client-2": {4.0}}


def test_all_share_the_verify_nodes_line():
    """Two drafts of 2 tokens, 1,000 bytes each, arrive at once on fast lines: the second is in 0.4 s later."""
    _, rounds = trace(1, replace(BARRIER, drafted_bytes=1000.0, verify_bytes_per_s=10_000.0))
    middle = [finished for finished in rounds if finished.round.num_drafted == 4][2:-5]
    assert len(middle) > 5
    for before, finished in pairwise(middle):
        assert 0.4 + before.send_s < finished.waited_s < 0.46 + before.send_s
        num_tokens = sum(len(verdict.tokens) for verdict in before.verdicts)
        assert before.send_s == pytest.approx((2 * 60 + 3 * num_tokens) / 10_000)
