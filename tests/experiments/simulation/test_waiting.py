"""Worlds whose draft models draft unasked: one that is near and quick is waited for, and one that is slow is not."""

from dataclasses import replace

import pytest

from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from verify_node.scheduler import start as starting

ROUND = Linear(fixed_s=0.01, token_s=0.00001)
NEAR = Settings(
    num_clients=4,
    num_sessions=2,
    num_at_once=1,
    sizes=lambda client, number: (8, 200),
    stops=0.0,
    self_draft=False,
    alpha=(0.6,),
    latency_s=(0.0002,),
    round_cost=ROUND,
    known_cost=True,
    budget=40,
    max_round_tokens=80,
    num_pages=1000,
    context_len=1000,
)


def seconds(settings: Settings) -> float:
    world = World(3, settings)
    world.run(10_000.0)
    return world.now


def shares(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """The time that it takes with waits for drafts, and without any."""
    waiting = seconds(settings)
    monkeypatch.setattr(starting, "SHARE", 0.0)
    monkeypatch.setattr(starting, "SHARE_ALONE", 0.0)
    return waiting, seconds(settings)


def test_a_near_and_quick_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, going = shares(replace(NEAR, draft_cost=(Linear(fixed_s=0.0003),)), monkeypatch)
    assert waiting < 0.9 * going


@pytest.mark.thorough
@pytest.mark.parametrize("step_s", [0.002, 0.006])
def test_a_slow_one_holds_nobody_up(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, going = shares(replace(NEAR, draft_cost=(Linear(fixed_s=step_s),)), monkeypatch)
    assert waiting < 1.02 * going
