"""The twin of live runs: measured where the truth is known, and simulated again, it is what it was."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from experiments.served.recorded import Trial
from experiments.served.running import Kind
from experiments.served.simulated import placed, settings, simulate
from experiments.simulation.settings import Settings
from goodspeed.fair.round_time import Linear
from goodspeed.serving.measuring.recording import Drafted
from verify_node.config import VerifyConfig

CLIENTS = ("chat", "sql")
ALPHAS = (0.8, 0.5)
ROUNDS = 200
PAPER = VerifyConfig(model="m", budget=6, preset="paper")
TRUE = Settings(
    num_clients=2,
    num_at_once=1,
    stops=0.0,
    sizes=lambda client, number: (9, 60),
    rounds="barrier",
    verification=("ratio",),
    policy="fixed",
    budget=6,
    context_len=200,
    round_cost=Linear(fixed_s=0.05, token_s=0.002),
    alpha=ALPHAS,
    draft_cost=(Linear(fixed_s=0.004), Linear(fixed_s=0.002)),
    latency_s=(0.001,),
)


@pytest.fixture(scope="module")
def runs():
    """As if they were live."""
    return [simulate(TRUE, CLIENTS, ROUNDS, seed) for seed in range(2)]


def test_agreement_by_place_is_measured(runs):
    for client, alpha in enumerate(ALPHAS):
        assert placed(runs, client, 3, waits=True).rates == pytest.approx([alpha] * 3, abs=0.08)


class Tried:
    """A run of which only trials are asked."""

    def __init__(self, trials):
        self._trials = trials

    def trials(self, client):
        return self._trials


def test_what_came_too_late_is_not_wrong_where_rounds_do_not_wait(runs):
    late = [Trial(3, Drafted(session=0, base_len=1, num_tokens=1))] * 900
    given: list[Any] = [Tried([*runs[0].trials(0), *late])]
    assert placed(given, 0, 2, waits=False).rates == placed(runs[:1], 0, 2, waits=False).rates
    assert placed(given, 0, 2, waits=True).rates[0] < 0.5


def answered(run):
    """The run with answers as if a step took 4 ms and a way 1 ms, which a simulated one has not."""

    def told(one):
        return msgspec.structs.replace(one, answer_s=0.002 + 0.004 * (len(one.agreed) + 1))

    rounds = [msgspec.structs.replace(done, drafts=tuple(map(told, done.drafts))) for done in run.rounds]
    return replace(run, rounds=tuple(rounds))


def steps(found):
    """Seconds of each draft model's pass."""
    return [cost.round_s(1, 1, 0) for cost in found.draft_cost]


def test_the_twin_is_as_fast_as_what_was_measured(runs):
    found = settings(Kind([]), PAPER, runs, [answered(one) for one in runs])
    assert (found.rounds, found.verification, found.budget) == ("barrier", ("ratio",), 6)
    assert steps(found) == pytest.approx([0.004, 0.004], rel=0.01)
    again = replace(found, policy="fixed", draft_cost=TRUE.draft_cost, latency_s=TRUE.latency_s)
    live = np.mean([one.tokens_per_s for one in runs], axis=0)
    assert simulate(again, CLIENTS, ROUNDS, 7).tokens_per_s == pytest.approx(live, rel=0.1)


def test_unequal_users_have_slower_models_and_several_texts_at_once(runs):
    kind = Kind([], [], (1, 4), (3, 1))
    found = settings(kind, VerifyConfig(model="m", budget=6), runs, [answered(one) for one in runs])
    assert found.loads == (3, 1)
    assert steps(found) == pytest.approx([0.004, 4 * 0.004], rel=0.01)
    twin = simulate(replace(found, policy="fixed"), CLIENTS, 40, 1)
    for name, load in zip(CLIENTS, found.loads, strict=True):
        numbers = {one.session for one in twin.rounds[-1].drafts if twin.sessions[one.session].client == name}
        assert len(numbers) <= load
    written = twin.tokens.sum(axis=0)
    assert written[0] > 2 * written[1]
