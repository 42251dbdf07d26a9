"""The twin of live runs: measured where the truth is known, and simulated again, it is what it was."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from experiments.served.running import Kind
from experiments.served.simulated import Placed, placed, recorded, settings, simulate
from experiments.simulation.settings import Settings
from goodspeed.fair.round_time import Linear
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


def answered(run):
    """The run with answers as if a step took 4 ms and a way 1 ms, which a simulated one has not."""

    def told(one):
        return msgspec.structs.replace(one, answer_s=0.002 + 0.004 * len(one.agreed))

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


def test_rounds_that_do_not_wait_replay_what_these_models_were_recorded_to_do(runs):
    domains, default = ("sql", "chat"), VerifyConfig(model="smollm2", budget=6)
    texts = recorded("smollm2", "smollm2-draft", domains, 1.0)
    assert texts is not None
    assert [texts.text(client, number).domain for client in (0, 1) for number in (0, 9)] == ["sql"] * 2 + ["chat"] * 2
    assert {text.temperature for client in (0, 1) for text in [texts.text(client, 0)]} == {1.0}
    found, waits = (settings(Kind([]), node, runs, [answered(one) for one in runs], texts) for node in (default, PAPER))
    assert (found.acceptance, found.ngrams, found.replays_own) == (texts, ("own",), True)
    assert found.acceptance is not None
    assert waits.acceptance is not None
    assert (type(waits.acceptance(0, 0)), waits.ngrams, waits.replays_own) == (Placed, ("off",), False)
    first = texts.text(0, 0)
    claim = found.acceptance(0, 0).probabilities(first.prompt_len + 3, 0)
    assert claim == first.models["smollm2-draft"].claims[3]
    assert sum(each.num_accepted for done in simulate(found, CLIENTS, 50, 0).rounds for each in done.drafts) > 0
    for pair in (("smollm2", "none"), ("m", "smollm2-draft")):
        assert recorded(*pair, domains, 1.0) is None
    assert recorded("smollm2", "smollm2-draft", ("own",), 1.0) is None
    assert recorded("smollm2", "smollm2-draft", domains, 0.5) is None
