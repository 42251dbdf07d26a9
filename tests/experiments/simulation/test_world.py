"""The simulated world: the same seed gives the same trace, and time passes as the settings say."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from draft_node.core.generation import Generation
from experiments.simulation.clock import Clock, Watch
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.draft_model import DraftModel
from experiments.simulation.texts.text import alone
from experiments.simulation.world import World
from goodspeed.drafting.proposing import Propose
from goodspeed.drafting.tree import Nodes
from goodspeed.fair.policies import ClientState
from goodspeed.fair.round_time import Linear
from goodspeed.wire.messages import Sampling
from tests.fakes import proposal

SMALL = Settings(num_clients=3, num_at_once=1, min_tokens=100, max_tokens=100, stops=0.0, context_len=200)


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
    settings = replace(
        SMALL,
        num_clients=2,
        num_sessions=1,
        **PAPER,
        policy="fixed",
        budget=4,
        latency_s=(0.01, 0.5),
        draft_cost=(Linear(fixed_s=0.1),),
    )
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
    settings = replace(SMALL, num_clients=2, num_sessions=1, policy="fixed", budget=4, **PAPER)
    settings = replace(settings, drafted_bytes=1000.0, verify_bytes_per_s=10_000.0)
    _, rounds = trace(1, settings)
    middle = [finished for finished in rounds if finished.round.num_drafted == 4][2:-5]
    assert len(middle) > 5
    for before, finished in pairwise(middle):
        assert 0.4 + before.send_s < finished.waited_s < 0.46 + before.send_s
        num_tokens = sum(len(verdict.tokens) for verdict in before.verdicts)
        assert before.send_s == pytest.approx((2 * 60 + 3 * num_tokens) / 10_000)


def test_events_happen_in_order_and_clocks_may_be_wrong():
    clock = Clock()
    seen: list[str] = []
    clock.at(2.0, seen.append, "second")
    clock.at(2.0, seen.append, "third")
    clock.at(1.0, seen.append, "first")
    clock.run_until(5.0)
    assert seen == ["first", "second", "third"]
    assert clock.now == 5.0
    watch = Watch(clock, ahead_s=100.0, drift=0.1)
    assert watch.now == pytest.approx(105.5)
    assert watch.until(111.0) == pytest.approx(10.0)


class Rising(Acceptance):
    """Wrong up to a position, and right from there on."""

    def __init__(self, position: int) -> None:
        self.position = position

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return float(position >= self.position and on_path)

    def probabilities(self, position: int, offset: int) -> float:
        return 1.0


def test_a_draft_model_begins_anew_where_the_text_left_what_it_drafted_unasked() -> None:
    """What it drafted itself is no part of the text, however often the text goes on otherwise."""
    request = Generation(bytes(16), (1, 2, 3), Sampling(seed=7), 100)
    text = alone(request)
    model = DraftModel({request.session_id: Rising(23)})
    for length in range(20):
        base = (*request.prompt, *text[:length])
        first = proposal(model, Propose(request, 1, 0, base, 2))
        assert first[0] != text[length]
        proposal(model, Propose(request, 1, 0, base, 2, tree=Nodes(first, (0.9, 0.9), (-1, 0))))
    last = proposal(model, Propose(request, 1, 0, (*request.prompt, *text[:20]), 3))
    assert last == text[20:23]
