"""Nodes that stop or stay away, and connections that end, each by itself.

For every ending there is a world in which it is earned, and one, broken on purpose, in which it is found.
"""

from dataclasses import replace
from typing import Any

import pytest

from draft_node.core.actions import Fail, Tell
from draft_node.core.core import DraftCore
from experiments.simulation.faults import play
from experiments.simulation.nodes.users import UserText
from experiments.simulation.settings import Settings, with_faults
from experiments.simulation.world import World

CALM = Settings(num_clients=3, num_sessions=8, max_tokens=80, context_len=200, num_pages=400)
ENDING = replace(with_faults(CALM, away_every_s=3.0, away_s=10.0), connect_timeout_s=1.0)


def played(settings: Settings, num_seeds: int = 4) -> tuple[list[UserText], list[World]]:
    """All texts of several worlds in which nothing is wrong."""
    worlds = [play(seed, settings) for seed in range(num_seeds)]
    assert [found.what for _, found in worlds] == [[]] * num_seeds
    return [each for world, _ in worlds for draft in world.drafts for each in draft.done], [one for one, _ in worlds]


def codes(texts: list[UserText]) -> set[str]:
    return {text.fail.code for text in texts if text.fail is not None}


@pytest.mark.thorough
def test_an_absence_that_is_too_long_ends_the_texts_that_wait_and_no_other() -> None:
    texts, _ = played(ENDING)
    assert codes(texts) == {"verify_away"}
    assert any(text.finish for text in texts)


@pytest.mark.thorough
def test_a_draft_node_that_leaves_frees_what_it_had_at_once() -> None:
    texts, worlds = played(with_faults(CALM, leave_every_s=1.0))
    assert codes(texts) == {"closed"}
    assert not any(world.refusals for world in worlds)
    world = World(1, CALM)
    world.settle(0.3)
    core, peer_id = world.verify.core, world.drafts[0].connection.peer_id
    assert len(core.sessions) == 6
    world.drafts[0].leave()
    world.settle(0.011)
    assert peer_id not in core.peers
    assert len(core.sessions) == 4


@pytest.mark.thorough
def test_a_draft_node_that_drains_tells_its_users_and_the_one_who_comes_later() -> None:
    texts, _ = played(with_faults(CALM, drain_every_s=1.0))
    assert codes(texts) == {"draining"}
    world = World(1, CALM)
    world.settle(0.3)
    world.drafts[0].drain()
    assert [text.fail.code for text in world.drafts[0].done if text.fail] == ["draining"] * 3
    world.settle(0.02)
    assert len(world.verify.core.sessions) == 4


@pytest.mark.parametrize("code", ["verify_away", "closed", "draining", "too_large"])
def test_an_ending_that_nobody_earned_is_found(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    tick = DraftCore.tick

    def rash(core: DraftCore, now: float) -> list[Any]:
        tells = [Tell(session_id, Fail(code, "for no reason")) for session_id in core.sessions]
        return [*tick(core, now), *(tells if core.link.connected else [])]

    monkeypatch.setattr(DraftCore, "tick", rash)
    assert any("failed for no reason" in what for what in play(0, ENDING, limit_s=2000.0)[1].what)
