"""The paper's Fig. 2: the goodput that the verify node estimates against what comes of it, eight clients together.

The state machines' world, in barrier rounds: every user asks for one text after the other, begins in a recorded domain
drawn at random, and changes to another with a small probability at every token (`Switching`). Acceptance is that of the
client's own draft model there. The estimate for a round
is the sum of the clients' smoothed goodput (Eq. 4) before that round, so it has not seen it. Both are smoothed by a
moving average of 10 rounds, with one standard deviation of those 10 as a band, as in the paper.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.accounts import interval
from experiments.simulation.arrays.replays import IN_TURN, alphas_of, clients_of
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts.acceptance import Switching
from experiments.simulation.world import World
from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats

OURS = "gradient"
NUM_CLIENTS = 8
WINDOW = 10
SHOWN = 300  # rounds in the figure and in the results
WARM_UP = 3  # rounds in which the clients come, one before the others


@dataclass(frozen=True)
class Config(Comparing):
    """`experiments/configs/fig2_estimation.toml`."""

    num_seeds: int
    num_rounds: int
    budgets: list[int]
    betas: list[float]
    eta: float
    switch: float  # probability of another domain, for each token
    max_tokens: int  # of a text
    policies: tuple[str, ...] = (OURS,)
    alphas: tuple[float, ...] = ()  # acceptance rates between which clients switch, one for each; (): the recorded ones
    recordings: str = ""  # a file of recorded texts; empty: the shipped one

    @property
    def num_clients(self) -> int:
        return len(self.alphas) or NUM_CLIENTS


@dataclass(frozen=True)
class Series:
    """Tokens of all clients together, of each round [rounds]."""

    realised: Floats
    estimated: Floats


def simulate(config: Config, budget: int, beta: float, seed: int, policy: str = OURS) -> Series:
    rates = [config.alphas] if config.alphas else recorded_rates(config.recordings)
    noted: list[tuple[int, float]] = []
    known = 0.0

    def note(finished: Finished) -> None:
        nonlocal known
        core = world.verify.core
        if core is None:
            return
        noted.append((sum(len(verdict.tokens) for verdict in finished.verdicts), known))
        known = sum(client.goodput.value for client in core.allocator.clients.values())

    settings = Settings(
        num_clients=config.num_clients,
        num_sessions=1 + 2 * config.num_rounds * budget // config.max_tokens,
        num_at_once=1,
        min_tokens=config.max_tokens,
        max_tokens=config.max_tokens,
        stops=0.0,
        **PAPER,
        policy=policy,
        budget=budget,
        eta=config.eta,
        beta=beta,
        max_round_tokens=1000,
        num_pages=10_000,
        context_len=config.max_tokens + 100,
        acceptance=lambda client, number: Switching(
            rates[client % len(rates)], config.switch, 1_000_003 * seed + 1009 * number + client
        ),
    )
    world = World(seed, settings, note)
    world.run_rounds(WARM_UP + config.num_rounds + 1)
    return Series(*np.array(noted[WARM_UP : WARM_UP + config.num_rounds]).T)


def recorded_rates(recordings: str) -> list[list[float]]:
    """Acceptance rates of all domains, for each draft model that clients have in turn."""
    return [alphas_of(clients_of(NUM_CLIENTS, recordings, (model,))).tolist() for model in IN_TURN]


def moving(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each WINDOW rounds [rounds - WINDOW + 1]."""
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
    return windows.mean(axis=1), windows.std(axis=1)


def compare(series: Series) -> dict[str, float]:
    """Returns how well one follows the other, in tokens a round, after the moving average and before."""
    estimated, realised = series.estimated, series.realised
    (guess, guess_band), (true, true_band) = moving(estimated), moving(realised)
    return {
        "mean_absolute_error": float(np.abs(guess - true).mean()),
        "relative_error": float(np.abs(guess - true).mean() / true.mean()),
        "correlation": float(np.corrcoef(guess, true)[0, 1]),
        "bands_meet": float((np.abs(guess - true) <= guess_band + true_band).mean()),
        "bias": float((estimated - realised).mean()),
        "raw_mean_absolute_error": float(np.abs(estimated - realised).mean()),
        "raw_correlation": float(np.corrcoef(estimated, realised)[0, 1]),
    }


def experiment(config: Config) -> Outcome:
    if config.num_rounds <= 2 * WINDOW or config.num_seeds < 2:
        raise ConfigError(f"a moving average of {WINDOW} needs more rounds, and an interval 2 seeds; not {config}")
    results: list[dict[str, Any]] = []
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    for policy, budget, beta in product(config.policies, config.budgets, config.betas):
        name = _name(budget, beta, policy)
        seeds = parts(f"seeds of {name}", range(config.num_seeds))
        runs = [simulate(config, budget, beta, seed, policy) for seed in seeds]
        compared = [compare(one) for one in runs]
        mean = {key: float(np.mean([one[key] for one in compared])) for key in compared[0]}
        error = {key: interval([one[key] for one in compared])[1] for key in mean}
        facts[name] = {"mean": mean, "confidence": error}
        findings += [Finding(f"{name}: {key.replace('_', ' ')}", value) for key, value in mean.items()]
        results += rows_of(name, runs[0])
    return Outcome(rows=results, findings=findings, facts={"by_setting": facts}, notes=NOTES)


def _name(budget: int, beta: float, policy: str) -> str:
    return f"C = {budget}, beta = {beta:g}" + ("" if policy == OURS else f", {policy}")


NOTES = [
    "Errors in tokens a round, all clients together; means over seeds. The paper shows its curves without figures for",
    "them, so there is nothing to compare with. Figure and results are the first of seed 0.",
]


def rows_of(name: str, series: Series) -> list[dict[str, Any]]:
    """The moving averages of the first rounds, for `draw_panel`."""
    (guess, guess_band), (true, true_band) = moving(series.estimated), moving(series.realised)
    columns = {
        "realised": series.realised[WINDOW - 1 :],
        "estimated": series.estimated[WINDOW - 1 :],
        "realised_mean": true,
        "realised_std": true_band,
        "estimated_mean": guess,
        "estimated_std": guess_band,
    }
    rounded = {key: np.round(values, 3).tolist() for key, values in columns.items()}
    return [
        {"setting": name, "round": WINDOW + place} | {key: values[place] for key, values in rounded.items()}
        for place in range(min(SHOWN, len(guess)))
    ]


def draw(config: Config, results: Results) -> Figure:
    """Estimated and realised goodput with the last budget; a panel for each policy and beta."""
    shown = list(product(config.policies, config.betas))
    figure = new_figure(5.0 * len(shown), 4.2)
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True).flat
    for panel, (policy, beta) in zip(panels, shown, strict=True):
        name = _name(config.budgets[-1], beta, policy)
        draw_panel(panel, [row for row in results.rows if row["setting"] == name])
        panel.set_title(f"{config.num_clients} clients, {name}")
    return styles.finish(figure, "The estimated goodput follows the realised one within its standard deviation")


def draw_panel(panel: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Mean and band of what is estimated and of what is realised."""
    numbers = [row["round"] for row in rows]
    for place, label in enumerate(("estimated", "realised")):
        mean, band = (np.array([row[f"{label}_{column}"] for row in rows]) for column in ("mean", "std"))
        style = styles.curve(place, len(rows)) | {"markersize": 3.0}
        panel.plot(numbers, mean, label=label, **style)
        deviation = f"{label}: 1 standard deviation"
        panel.fill_between(
            numbers, mean - band, mean + band, color=style["color"], alpha=0.2, linewidth=0, label=deviation
        )
    panel.set_xlabel("round")
    panel.set_ylabel("tokens a round, mean of 10")


if __name__ == "__main__":
    sys.exit(run("fig2_estimation", "Estimated goodput against realised goodput.", experiment, draw, Config))
