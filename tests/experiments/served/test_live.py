"""The experiment `live` says what runs show, which are made here: no node is started."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from experiments import live
from experiments.fig4_convergence import OURS
from experiments.live import Config, optima, outcome
from experiments.served.pictures import DEFAULT, PAPER, UNEQUAL
from experiments.served.recorded import Run
from experiments.simulation.arrays.optimum import geometric, optimum
from goodspeed.errors import ConfigError
from tests.experiments.served.test_recorded import drafted, opened, round_of

ALPHAS = (0.9, 0.4)
CLIENTS = ("chat", "sql")
ROUNDS = 400
CONFIG = Config("m", "d", ROUNDS, 3, 6, 1.0, 9, CLIENTS, (OURS, "fixed"), (1, 2), (2, 1))
SESSIONS = {number: opened(number, client) for number, client in enumerate(CLIENTS)}


def made(seed, lengths, estimates=(3.0, 1.6), seconds=0.1):
    """A run of two clients whose drafts always have these lengths, and are accepted with the rates ALPHAS."""
    random = np.random.default_rng([seed, *lengths])
    rounds = []
    for number in range(ROUNDS):
        drafts = []
        for client, (alpha, length) in enumerate(zip(ALPHAS, lengths, strict=True)):
            agreed = random.random(length) < alpha
            accepted = length if agreed.all() else int(np.argmin(agreed))
            told = {"may_draft": length, "acceptance_rate": alpha, "goodput": estimates[client]}
            marks = "".join("01"[int(one)] for one in agreed)
            drafts.append(drafted(client, accepted + 1, agreed=marks, num_accepted=accepted, **told))
        rounds.append(round_of(number, *drafts, round_s=seconds, pause_s=0.0))
    phases = ("receive", "forward", "verify", "schedule", "send")
    return Run(CLIENTS, SESSIONS, tuple(rounds[:1]), tuple(rounds[1:]), dict.fromkeys(phases, 39.9))


@pytest.fixture(scope="module")
def runs():
    return {OURS: [made(seed, (4, 2)) for seed in range(3)], "fixed": [made(seed, (3, 3)) for seed in range(3)]}


@pytest.fixture(scope="module")
def found(runs):
    served = {PAPER: runs, DEFAULT: {name: list(reversed(own)) for name, own in runs.items()}, UNEQUAL: runs}
    twice = {name: [replace(one, rounds=tuple(map(slow, one.rounds))) for one in own] for name, own in runs.items()}
    return outcome(CONFIG, served, served | {DEFAULT: twice})


def slow(done):
    return msgspec.structs.replace(done, started_s=2 * done.started_s, duration_s=2 * done.duration_s)


def test_the_optimum_is_that_of_the_rates_which_the_drafts_show(runs):
    right = optimum(geometric(ALPHAS, CONFIG.budget), CONFIG.budget).utility
    for one in optima(runs, CONFIG.budget):
        assert one == pytest.approx(right, abs=0.06)


def test_facts_have_the_figures_by_name(found):
    fig2, fig4 = found.facts["fig2"], found.facts["fig4"]
    assert {"error", "corr"} <= fig2.keys()
    assert {"error", "corr"} <= found.facts["default"]["fig2"].keys()
    assert set(fig4) == {OURS, "fixed", "optimum"}
    assert all({"log_utility", "ci"} <= one.keys() for one in fig4.values())
    assert fig4["optimum"]["log_utility"] > fig4["fixed"]["log_utility"] - 0.05
    assert {"jain", "worst_tokens_per_s"} <= found.facts["fairness"][DEFAULT]["fixed"].keys()
    assert found.facts["acceptance_rate"] == pytest.approx(dict(zip(CLIENTS, ALPHAS, strict=True)), abs=0.03)
    accepted = 0.9 + 0.9**2 + 0.9**3 + 0.4 + 0.4**2 + 0.4**3
    drafts = found.facts["drafts_a_round"][PAPER]["fixed"]
    assert drafts == pytest.approx({"drafted": 6.0, "accepted": accepted}, abs=0.1)
    assert found.facts["seconds_a_round"][PAPER]["fixed"]["send"] == pytest.approx(39.9 / (ROUNDS - 1))


@pytest.mark.parametrize("change", [{"num_rounds": 20}, {"num_seeds": 1}, {"policies": ("fixed",)}])
def test_settings_without_an_interval_or_a_comparison_are_refused(change):
    with pytest.raises(ConfigError, match="an interval two seeds"):
        live.experiment(replace(CONFIG, **change))


def test_each_live_figure_has_its_twins_ratio(found):
    twin, names = found.facts["twin"], ("tokens a round", "tokens/s", "seconds a round")
    by_policy = [f"{policy}, {name}" for policy in (OURS, "fixed") for name in names]
    assert [name for name in twin if name.startswith(UNEQUAL)] == [f"{UNEQUAL}: {name}" for name in by_policy]
    of_paper = [f"{PAPER}: {name}" for name in (*by_policy, "fig2, error", "fig2, corr")]
    assert [name for name in twin if name.startswith(PAPER)] == of_paper
    assert [ratio for name, ratio in twin.items() if not name.startswith(DEFAULT)] == pytest.approx([1.0] * 14)
    assert twin[f"{DEFAULT}: fixed, seconds a round"] == pytest.approx(2.0, rel=0.01)
    assert twin[f"{DEFAULT}: fixed, tokens/s"] == pytest.approx(0.5, rel=0.01)
    assert twin[f"{DEFAULT}: fixed, tokens a round"] == pytest.approx(1.0)
    assert found.facts["twin_figures"][f"{DEFAULT}: fixed, seconds a round"]["live"] == pytest.approx(0.1)
    missed = [one.what for one in found.findings if one.reached is False and one.what.startswith("simulated / live")]
    assert len(missed) == 4
    assert all(DEFAULT in what for what in missed)
