"""Both nodes' state machines together, in worlds that lose, repeat, reorder, delay, restart and freeze.

Whatever happens, every user gets exactly what the target alone would write, each token once, and nothing is left over.
Worlds with anything at all are in `tests/experiments/simulation/test_faults.py`.
"""

from dataclasses import replace
from functools import partial

import pytest

from draft_node.core.session import Session
from experiments.simulation.checking.worlds import Phases
from experiments.simulation.settings import Faults, Settings
from experiments.simulation.texts.text import alone
from experiments.simulation.world import World
from verify_node.core.sessions import FORGOTTEN_S

GOOD = Settings(through_codec=True)
BAD = Faults(
    lose=0.1,
    repeat=0.1,
    jitter_s=0.05,
    restart_every_s=4.0,
    cut_every_s=10.0,
    freeze_every_s=10.0,
    kill_every_s=20.0,
    no_draft=0.05,
    hang=0.02,
    cancel=0.2,
)
POLICIES = ["gradient", "fixed", "random", "phases"]


def with_policy(settings: Settings, name: str, seed: int = 0) -> Settings:
    return replace(settings, policy=partial(Phases, seed) if name == "phases" else name)


def check(world: World, limit_s: float = 600.0) -> World:
    """Runs a world to its end and looks at everything that must hold."""
    world.run(limit_s)
    for draft in world.drafts:
        assert len(draft.done) == world.settings.num_sessions
        for generation in draft.done:
            assert generation.fail is None, f"seed {world.seed}: {generation.fail}"
            context_len = min(world.settings.context_len, world.settings.num_pages * world.settings.page_size)
            expected = alone(generation.session.request, context_len)
            if generation.cancelled:
                expected = expected[: len(generation.delivered)]
            assert tuple(generation.delivered) == expected, f"seed {world.seed}"
    world.settle(2 * FORGOTTEN_S)
    core = world.verify.core
    assert core is not None
    assert not core.sessions, f"seed {world.seed}: sessions are left over"
    core.plan(world.now)
    assert core.pool.num_free == core.pool.num_pages, f"seed {world.seed}: pages are left over"
    return world


def sessions(world: World) -> list[Session]:
    return [generation.session for draft in world.drafts for generation in draft.done]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_good_world(rounds, policy, verification):
    settings = with_policy(replace(GOOD, rounds=rounds, verification=(verification,)), policy)
    world = check(World(1, settings), limit_s=20.0)
    assert sum(session.statistics.num_accepted for session in sessions(world)) > 0
    assert not world.refusals


def test_what_is_drafted_beyond_the_text_saves_round_trips():
    """Where rounds go on meanwhile, a far draft model that is always right is ahead of the text by a round trip."""
    far = replace(
        GOOD, num_clients=1, num_sessions=1, min_tokens=40, stops=0.0, alpha=(1.0,), latency_s=(0.2,), budget=4
    )
    barrier, continuous = (check(World(1, replace(far, rounds=rounds))) for rounds in ("barrier", "continuous"))
    times = [world.drafts[0].done_at for world in (barrier, continuous)]
    assert times[1] < 0.6 * times[0]


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_a_bad_world(rounds, policy):
    world = check(World(3, with_policy(replace(GOOD, rounds=rounds, num_sessions=8, faults=BAD), policy)))
    assert world.verify.num_boots > 1


@pytest.mark.parametrize("seed", range(20))
def test_a_lossy_line_costs_seconds(seed):
    """Each loss is made good by repetition at once, and not only when somebody gives up (`FORGOTTEN_S`, leases)."""
    faults = Faults(lose=0.15, repeat=0.1)
    policy = ["gradient", "phases"][seed % 2]
    settings = replace(GOOD, num_sessions=1, max_tokens=25, faults=faults)
    check(World(seed, with_policy(settings, policy, seed)), limit_s=28.0)
