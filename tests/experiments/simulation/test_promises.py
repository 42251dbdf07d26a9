"""Promises in simulated worlds: what is promised is kept under any load, whatever draft nodes do."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from experiments.simulation.arrivals import Arrival, dealt_out
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives

QUICK, PATIENT = Objectives(1.0, 0.04, "quick"), Objectives(4.0, 0.1, "patient")
COST = Linear(fixed_s=0.01, token_s=0.001, session_s=0.0002)  # a round of 40 ms carries some 25 tokens
ROOM: dict[str, Any] = {"max_round_tokens": 256, "num_pages": 600, "page_size": 16, "context_len": 400}
BASE = Settings(num_clients=4, stops=0.0, alpha=(0.8,), latency_s=(0.005,), max_sessions=10_000, validate=False, **ROOM)
SETTINGS = replace(BASE, admission="dp", round_cost=COST, known_cost=True)


def requests(per_second: float, seconds: float = 5.0) -> list[Arrival]:
    """Prompts of 50 to 200 tokens and texts of 20 to 80, of both levels and of none, at random times."""
    rng = Random(f"{per_second}")
    found, at = [], 0.0
    while (at := at + rng.expovariate(per_second)) < seconds:
        slo = rng.choice([QUICK, QUICK, PATIENT, None])
        found.append(Arrival(at, rng.randint(50, 200), rng.randint(20, 80), Independent(0.8), slo))
    return found


def served(per_second: float, **changes: Any) -> World:
    settings = replace(SETTINGS, **changes)
    return World(1, replace(settings, arrivals=dealt_out(requests(per_second), settings.num_clients)))


def outcomes(world: World, clients: range = range(4)) -> Counter[tuple[bool, bool]]:
    """Texts with a level, by whether it was promised, and whether it was attained by its reader's clock.

    The world is run to its end; all that was promised is attained.
    """
    world.run(2_000.0)
    found: Counter[tuple[bool, bool]] = Counter()
    for client in clients:
        for one in world.drafts[client].done:
            if one.session.request.slo is not None:
                found[bool(one.session.promised), one.times.kept().outcome == "attained"] += 1
    assert found[True, False] == 0
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("admission", ["dp", "edf"])
@pytest.mark.parametrize("per_second", [3.0, 20.0])
def test_what_is_promised_is_kept_however_much_is_asked_for(per_second: float, admission: str) -> None:
    found = outcomes(served(per_second, admission=admission))
    assert found[True, True] > 0.9 * found.total() * min(1.0, 3.0 / per_second), "and much is promised"


@pytest.mark.thorough
@pytest.mark.parametrize("context_s", [0.0, 2e-6])
def test_what_waits_takes_nothing_from_promises(context_s: float) -> None:
    """Hundreds of texts wait, of which few are in a round; so a round's time rises with its own, not with theirs."""
    cost = Linear(fixed_s=0.01, token_s=0.0005, session_s=0.0002, context_s=context_s)
    assert outcomes(served(60.0, round_cost=cost, num_pages=6000))[True, True] > 40


@pytest.mark.thorough
def test_slow_and_lying_draft_nodes_break_no_promise() -> None:
    """One is a hundred times slower, one is sure of everything and always wrong, and sends trees that are nonsense."""
    world = served(
        10.0,
        draft_cost=(Linear(fixed_s=2.0), Linear(fixed_s=0.002), Linear(fixed_s=0.002), Linear(fixed_s=0.002)),
        claims=("known", "certain", "random", "known"),
        alpha=(0.8, 0.0, 0.8, 0.8),
        ngrams=("off", "hostile", "off", "off"),
        trees=("own", "hostile", "hostile", "own"),
    )
    assert outcomes(world)[True, True] > 15


@pytest.mark.thorough
@pytest.mark.parametrize("strike", ["restart", "freeze", "cut"])
def test_a_draft_node_that_is_gone_breaks_no_promise_but_its_own(strike: str) -> None:
    world = served(10.0)
    struck = world.drafts[0]
    for at in (1.0, 2.5, 4.0):
        world.clock.after(at, *((struck.restart,) if strike == "restart" else (getattr(struck, strike), 1.5)))
    assert outcomes(world, range(1, 4))[True, True] > 15


# -- best effort beside promises ---------------------------------------------------------------------------------------

HASTY = Objectives(tpot_s=0.03, tier="hasty")
FROM_S, UNTIL_S = 3.0, 5.0  # the stretch of virtual time in which tokens are counted: everybody decodes in it


def quiet_beside_loud(num_quiet: int, each: int, loud: Objectives | None, **changes: Any) -> tuple[list[Any], World]:
    """Clients with texts of no level, beside 32 texts of one more client that come before theirs."""
    long = Arrival(0.5, 20, 300, Independent(0.8))
    schedules = [(long,) * each] * num_quiet + [(replace(long, at_s=0.0, slo=loud),) * 32]
    settings = replace(SETTINGS, num_clients=len(schedules), alpha=(0.8,), arrivals=tuple(schedules), **changes)
    verdicts: list[Any] = []
    world = World(1, settings, lambda done: verdicts.extend((done, one) for one in done.verdicts))
    world.settle(UNTIL_S)
    return [(done.started + done.duration_s, one) for done, one in verdicts if done.started > FROM_S], world


def tokens_at(verdicts: list[Any], world: World, client: int) -> list[tuple[float, int]]:
    """Returns when a client's sessions got how many tokens."""
    own = {one.session.request.session_id for one in world.drafts[client].generations.values()}
    return [(at, len(one.tokens)) for at, one in verdicts if one.session_id in own]


@pytest.mark.parametrize(("num_quiet", "each"), [(1, 2), (12, 1)])
def test_best_effort_keeps_a_quarter_of_its_share_beside_promises(num_quiet: int, each: int) -> None:
    promised, beside = quiet_beside_loud(num_quiet, each, HASTY)
    plain, without = quiet_beside_loud(num_quiet, each, None, admission="none")
    for client in range(num_quiet):
        own = tokens_at(promised, beside, client)
        num_without = sum(number for _, number in tokens_at(plain, without, client))
        assert sum(number for _, number in own) >= num_without / 4
        times = [FROM_S, *(at for at, _ in own), UNTIL_S]
        assert max(later - at for at, later in pairwise(times)) < 0.15, "one round in three or four has a token of each"
    kept = beside.verify.core.promises.promised
    assert 8 <= len(kept) <= 14, "three quarters of the 16 that rounds of 30 ms carry"
    assert all(one.due > beside.now - 1e-9 for one in kept.values()), "none of them is behind"
