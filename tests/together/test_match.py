"""Both nodes' state machines together, under every policy, rule and kind of rounds, and on lines that lose and repeat.

Every user gets exactly what the target alone would write, each token once, and nothing is left over. Worlds with
anything at all are in `tests/experiments/simulation/test_faults.py`.
"""

from dataclasses import replace
from functools import partial

import pytest

from draft_node.core.session import Session
from experiments.simulation.checking.worlds import Phases
from experiments.simulation.faults import play
from experiments.simulation.settings import Faults, Settings
from experiments.simulation.world import World

GOOD = Settings(through_codec=True)
POLICIES = ["gradient", "fixed", "random", "phases"]


def with_policy(settings: Settings, name: str, seed: int = 0) -> Settings:
    return replace(settings, policy=partial(Phases, seed) if name == "phases" else name)


def written(seed: int, settings: Settings, limit_s: float = 600.0) -> World:
    """Plays a world in which no text may fail; `play` looks at everything that must hold."""
    world, found = play(seed, settings, limit_s)
    assert found.what == []
    assert [generation.fail for draft in world.drafts for generation in draft.done if generation.fail] == []
    return world


def sessions(world: World) -> list[Session]:
    return [generation.session for draft in world.drafts for generation in draft.done]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_good_world(rounds, policy, verification):
    settings = with_policy(replace(GOOD, rounds=rounds, verification=(verification,)), policy)
    world = written(1, settings, limit_s=20.0)
    assert sum(session.statistics.num_accepted for session in sessions(world)) > 0
    assert not world.refusals


@pytest.mark.parametrize("seed", range(20))
def test_a_lossy_line_costs_seconds(seed):
    """Each loss is made good by repetition at once, and not only when somebody gives up (`FORGOTTEN_S`, leases)."""
    faults = Faults(lose=0.15, repeat=0.1)
    policy = ["gradient", "phases"][seed % 2]
    settings = replace(GOOD, num_sessions=1, max_tokens=25, faults=faults)
    world = written(seed, with_policy(settings, policy, seed), limit_s=28.0)
    assert world.num_faults_in_all > 0
    assert max(draft.done_at for draft in world.drafts) < 28.0
