"""The array path is the state machines' rounds, bit for bit; worlds side by side are the same as alone; the optimum."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.simulation.arrays import rows
from experiments.simulation.arrays.optimum import geometric, optimum
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.replays import Recorded, Replays, survival
from experiments.simulation.arrays.worlds import ArraySettings, Worlds
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.world import World
from goodspeed.fair import policies
from goodspeed.fair.round_time import Linear

NUM_ROUNDS = 120
ALPHAS = np.array([0.02, 0.3, 0.5, 0.7, 0.7, 0.7, 0.9, 0.98])
SEED = 3
OPTIONS = {"random": {"seed": SEED}}


def table(num_clients):
    """Agreement of each drafted token by client, place of its text, and place of its draft [clients, 4096, 32]."""
    alphas = ALPHAS[np.arange(num_clients) % len(ALPHAS)]
    return np.random.default_rng(5).random((num_clients, 4096, 32)) < alphas[:, None, None]


class Known(Acceptance):
    """The world's acceptance process: no chance left."""

    def __init__(self, agrees):
        self._agrees = agrees

    def rate(self, position, offset, on_path):
        return float(self._agrees[position - offset - 1, offset])

    def probabilities(self, position, offset):
        return 0.5


def machines(policy, num_clients, budget, weigh_evidence, agrees):
    """Per round: lengths verified, tokens accepted, and the estimates after it [rounds, clients] each."""
    lengths: list[np.ndarray] = []
    accepted: list[np.ndarray] = []
    estimates: list[list[tuple[float, float]]] = []

    def note(finished):
        drafted = {entry.session_id: entry.num_drafted for entry in finished.round.entries}
        order = {key: place for place, key in enumerate(world.verify.core.sessions)}
        row = np.zeros((2, num_clients), dtype=np.int64)
        for verdict in finished.verdicts:
            place = order[verdict.session_id]
            row[:, place] = drafted[verdict.session_id], verdict.num_accepted
        lengths.append(row[0])
        accepted.append(row[1])
        joined = [session for session in world.verify.core.sessions.values() if session.last_verdict is not None]
        estimates.append([(session.acceptance.value, session.client.goodput.value) for session in joined])

    texts = {"num_sessions": 1, "num_at_once": 1, "min_tokens": 4000, "max_tokens": 4000, "stops": 0.0, "prompt_len": 1}
    learning = {"eta": 0.07, "weigh_evidence": weigh_evidence, "beta": 0.3, "policy_seed": SEED}
    room = {"max_round_tokens": 1000, "num_pages": 10_000, "context_len": 4096, "budget": budget}
    costs = {"draft_cost": (Linear(),), "latency_s": (0.0,), "acceptance": lambda client, number: Known(agrees[client])}
    settings = Settings(num_clients=num_clients, policy=policy, **(texts | learning | room | costs | PAPER))
    world = World(1, settings, note)
    world.run_rounds(NUM_ROUNDS + 1)
    return lengths[:NUM_ROUNDS], accepted[:NUM_ROUNDS], estimates[:NUM_ROUNDS]


@pytest.mark.parametrize("policy", ["gradient", "throughput", "fixed", "random"])
@pytest.mark.parametrize(("num_clients", "budget", "weigh_evidence"), [(8, 20, True), (5, 7, False)])
def test_the_array_path_is_the_state_machines_rounds_bit_for_bit(policy, num_clients, budget, weigh_evidence):
    agrees = table(num_clients)
    lengths, accepted, estimates = machines(policy, num_clients, budget, weigh_evidence, agrees)

    def agreement(number, owner, offset, base):
        return agrees[owner, base.ravel()[owner], offset]

    settings = ArraySettings(num_clients, budget, eta=0.07, weigh_evidence=weigh_evidence, beta=0.3)
    worlds = Worlds(settings, rows.create(policy, 1, **OPTIONS.get(policy, {})), agreement)
    probes = 0
    for number in range(NUM_ROUNDS):
        worlds.num_joined = len(estimates[number])  # the first session is open before the others
        worlds.step()
        assert worlds.drafted[0].tolist() == lengths[number].tolist(), number
        assert worlds.accepted[0].tolist() == accepted[number].tolist(), number
        seen = np.column_stack([worlds.acceptance[0], worlds.goodput[0]])[: worlds.num_joined]
        assert seen.tolist() == [list(pair) for pair in estimates[number]], number
        probes += worlds.drafted[0, 0] == 1
    assert np.sum(accepted) > NUM_ROUNDS * budget / 4
    if policy in ("gradient", "throughput"):
        assert probes > 0  # the first client is asked now and then


@pytest.mark.parametrize("policy", ["gradient", "throughput", "fixed"])
def test_a_world_is_the_same_alone_and_among_others(policy):
    def run(seeds):
        settings = ArraySettings(8, 28, beta=0.5, num_worlds=len(seeds))
        worlds = Worlds(settings, rows.create(policy, len(seeds)), IndependentDraws(ALPHAS, seeds))
        worlds.run(60)
        return worlds.num_tokens, worlds.acceptance, worlds.goodput

    for together, alone in zip(run([4, 9, 2]), run([9]), strict=True):
        assert together[1].tolist() == alone[0].tolist()
        assert together[0].tolist() != alone[0].tolist()


@pytest.mark.parametrize("policy", ["gradient", "fixed"])
def test_a_policy_without_an_array_form_gives_the_same_by_its_list_form(policy):
    both, listed = [], rows.Listed([policies.create(policy) for _ in range(2)])
    for one in (rows.create(policy, 2), listed):
        both.append(Worlds(ArraySettings(8, 20, num_worlds=2), one, IndependentDraws(ALPHAS, [4, 9])))
        both[-1].run(40)
    assert both[0].num_tokens.tolist() == both[1].num_tokens.tolist()
    assert both[0].goodput.tolist() == both[1].goodput.tolist()


def test_probabilities_are_what_the_rates_say():
    draws = IndependentDraws([0.8, 0.25], seeds=range(50))
    owner, offset = np.repeat(np.arange(100), 4), np.tile(np.arange(4), 100)
    agrees = np.array([draws(number, owner, offset, owner) for number in range(200)]).reshape(-1, 2, 4)
    assert agrees.mean(axis=0) == pytest.approx(np.array([[0.8] * 4, [0.25] * 4]), abs=0.02)
    both = (agrees[:, 0, 0] & agrees[:, 0, 1]).mean()
    assert both == pytest.approx(0.64, abs=0.02)


def test_replays_are_what_was_recorded_over_the_end_of_a_text_into_the_next():
    """By hand: two texts of four and two tokens, and drafts of five."""
    replays = Replays([Recorded(("1101", "11"), 0.3)], longest=5, seeds=[1, 2])
    offsets = np.arange(5)

    def draft(place):
        base = (place - replays.starts) % 6
        return replays.probabilities(np.ones(5, dtype=np.int64), offsets, base).tolist()

    assert draft(0) == [1.0, 1.0, 0.0, 0.3, 0.3]
    assert draft(3) == [1.0] * 5  # the next text comes, and after the last one the first again
    assert draft(4) == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert replays.starts.shape == (2, 1)


def test_a_survival_curve_by_hand():
    # of drafts from 0, 1, 2, 3, 4 the first token agrees in three; two of those go on as far as is known, one agrees
    assert survival(["11001"], 3) == pytest.approx((3 / 5, 3 / 5 * 1 / 2, 0.0))


# -- x*, by hand, then against every mixture of decisions --------------------------------------------------------------

CURVE = (0.95, 0.6, 0.55, 0.1, 0.05)  # as no alpha would have it


def decisions(curves, budget):
    """mu of every decision [decisions, clients]."""
    tokens = np.concatenate([np.ones((len(curves), 1)), 1 + np.cumsum(curves, axis=1)], axis=1)
    every = itertools.product(range(min(budget, curves.shape[1]) + 1), repeat=len(curves))
    return np.array([[tokens[i, k] for i, k in enumerate(chosen)] for chosen in every if sum(chosen) <= budget])


def test_two_equal_clients_share_an_odd_token():
    best = optimum([(0.5, 0.25), (0.5, 0.25)], 1)
    assert best.goodput == pytest.approx([1.25, 1.25], abs=1e-4)
    assert best.lengths == pytest.approx([0.5, 0.5], abs=1e-4)
    assert best.utility == pytest.approx(2 * np.log(1.25))


@pytest.mark.parametrize("seed", range(8))
def test_no_mixture_of_decisions_is_better(seed):
    """x* lies among the mixtures, and no decision lies beyond the tangent there (so, by concavity, no mixture does)."""
    random = np.random.default_rng(seed)
    curves = np.vstack([geometric(random.uniform(0.1, 0.95, 3), 5), CURVE])
    budget = int(random.integers(3, 12))
    best = optimum(curves, budget)
    every = decisions(curves, budget)
    slope = 1.0 / best.goodput
    assert (every @ slope).max() <= slope @ best.goodput + 1e-5
    bounds = {"A_ub": -every.T, "b_ub": -(best.goodput - 1e-6), "A_eq": np.ones((1, len(every))), "b_eq": [1.0]}
    mixture = linprog(np.zeros(len(every)), **bounds, method="highs")
    assert mixture.status == 0, mixture.message
    assert best.utility == pytest.approx(np.log(best.goodput).sum())
    assert best.lengths.sum() == pytest.approx(budget, abs=1e-5)
