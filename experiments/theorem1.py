"""The paper's Theorem 1: as beta -> 0, with eta / beta -> 0, the smoothed goodput stays near x*.

Plain Eq. (3) and Eq. (4) with constant steps over the array path, at the recorded domains' acceptance. The theorem is
about t > T / beta, so a run is as long as beta makes it (and long enough that eta, too, has forgotten its beginning);
its last part is looked at. Three things are told of each beta: how far the smoothed goodput X is from x* (root mean
square, as a share of x*), how much of that is noise (the step beta alone spreads X by about the square root of half
of beta), and how far the mean goodput is from x*, which noise does not blur.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.accounts import interval
from experiments.simulation.arrays import rows
from experiments.simulation.arrays.optimum import Optimum, geometric, optimum, utility_of
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.replays import alphas_of, clients_of
from experiments.simulation.arrays.worlds import ArraySettings, Worlds
from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats

OURS = "gradient"
SAMPLES = 20  # of X, in the part that is looked at


@dataclass(frozen=True)
class Config(Comparing):
    """`experiments/configs/theorem1.toml`."""

    betas: list[float]
    eta_of_one: float
    powers: list[float]
    time: float  # rounds times beta
    kept: float  # of these, at the end
    settle: float  # rounds before those times eta, at least
    num_seeds: int
    num_clients: int
    budget: int
    policies: tuple[str, ...] = (OURS,)
    alphas: tuple[float, ...] = ()  # of the clients; (): as recorded
    recordings: str = ""  # a file of recorded texts; empty: the shipped one

    def eta(self, beta: float, power: float) -> float:
        return float(self.eta_of_one * beta**power)


def distances(
    config: Config, beta: float, eta: float, alphas: Floats, best: Optimum, policy: str = OURS
) -> dict[str, float]:
    """Results of one pair of steps, over all seeds."""
    settings = ArraySettings(
        config.num_clients, config.budget, eta, beta, num_worlds=config.num_seeds, weigh_evidence=False
    )
    worlds = Worlds(settings, rows.create(policy, config.num_seeds), IndependentDraws(alphas, range(config.num_seeds)))
    num_kept = max(SAMPLES, round(config.kept / beta))
    worlds.run(max(round((config.time - config.kept) / beta), round(config.settle / eta)))
    before, smoothed = worlds.num_tokens.copy(), []
    for _ in range(SAMPLES):
        worlds.run(num_kept // SAMPLES)
        smoothed.append(worlds.goodput.copy())
    off = np.array(smoothed) / best.goodput - 1.0  # [samples, seeds, clients]
    mean = (worlds.num_tokens - before) / (num_kept // SAMPLES * SAMPLES)  # [seeds, clients]
    each = np.sqrt((off**2).mean(axis=2))  # [samples, seeds]
    by_seed = each.mean(axis=0)
    return {
        "distance": float(np.sqrt((off**2).mean())),
        "confidence_95": interval(by_seed.tolist())[1],
        "farther_than_10_percent": float((each > 0.1).mean()),
        "noise": float(np.sqrt(((off - off.mean(axis=(0, 1))) ** 2).mean())),
        "mean_goodput_off": float(np.sqrt(((mean.mean(axis=0) / best.goodput - 1.0) ** 2).mean())),
        "utility_missing": float((best.utility - utility_of(mean.mean(axis=0))) / config.num_clients),
    }


def experiment(config: Config) -> Outcome:
    if len(config.betas) < 2 or config.num_seeds < 2 or config.kept >= config.time:
        raise ConfigError(f"two betas, two seeds, and a time longer than what is kept of it, at least; not {config}")
    if config.alphas and len(config.alphas) != config.num_clients:
        raise ConfigError(
            f"{len(config.alphas)} rates of acceptance for {config.num_clients} clients; give one for each"
        )
    alphas = np.array(config.alphas) if config.alphas else alphas_of(clients_of(config.num_clients, config.recordings))
    best = optimum(geometric(alphas, config.budget), config.budget)
    results: list[dict[str, Any]] = []
    findings: list[Finding] = []
    steps = parts("pairs of steps", product(config.policies, config.powers, config.betas))
    for (policy, power), pairs in groupby(steps, key=lambda step: step[:2]):
        own: list[dict[str, Any]] = []
        at = "" if policy == OURS else f"{policy}, "
        for _, _, beta in pairs:
            eta = config.eta(beta, power)
            found = distances(config, beta, eta, alphas, best, policy)
            key = {"policy": policy, "power": power, "beta": beta, "eta": eta, "eta_over_beta": eta / beta}
            own.append(key | found)
            what = f"{at}eta ~ beta^{power:g}, beta {beta:g}, eta {eta:.2g}: distance"
            findings.append(Finding(what, found["distance"]))
        results += own
        findings += [_slope(at, power, own), _farther(at, power, own)]
    return Outcome(rows=results, findings=findings, facts={"optimum": best.goodput.tolist()}, notes=NOTES)


NOTES = [
    "distance: root mean square of X / x* - 1 over clients, seeds and the last rounds. The theorem says that it goes",
    "to 0 with beta; how fast it does not say. The noise that Eq. (4) lets through alone makes it fall as beta^0.5.",
]


def _slope(at: str, power: float, found: Sequence[dict[str, Any]]) -> Finding:
    """The exponent with which the distance falls in beta, by least squares over logarithms."""
    logs = np.log([[row["beta"], row["distance"]] for row in found])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    falls = bool((np.diff(logs[np.argsort(logs[:, 0]), 1]) > 0).all())
    wanted = "falls throughout" if power > 1.0 else ""
    return Finding(f"{at}eta ~ beta^{power:g}: distance ~ beta^", slope, None, wanted, falls if wanted else None)


def _farther(at: str, power: float, found: Sequence[dict[str, Any]]) -> Finding:
    """The theorem's probability, at the smallest beta."""
    last = min(found, key=lambda row: float(row["beta"]))
    what = f"{at}eta ~ beta^{power:g}, beta {last['beta']:g}: share of the time farther than 10 % from x*"
    return Finding(what, last["farther_than_10_percent"])


def draw(config: Config, results: Results) -> Figure:
    """The distance from the optimum over beta, for each relation of eta to beta."""
    figure = new_figure(6.4, 4.8)
    axes = figure.subplots()
    for number, (policy, power) in enumerate(product(config.policies, config.powers)):
        own = [row for row in results.rows if (row.get("policy", OURS), row["power"]) == (policy, power)]
        error = [row["confidence_95"] for row in own]
        label = f"eta ~ beta^{power:g}" + ("" if policy == OURS else f", {policy}")
        betas, values = [row["beta"] for row in own], [row["distance"] for row in own]
        axes.errorbar(betas, values, yerr=error, label=label, **styles.curve(number))
    start = max(results.rows, key=lambda row: float(row["beta"]))
    line = [start["distance"] * (beta / start["beta"]) ** 0.5 for beta in config.betas]
    axes.plot(config.betas, line, linestyle=":", color="black", label="beta^0.5")
    axes.set(xscale="log", yscale="log", xlabel="beta", ylabel="X from x*, root mean square, share of x*")
    return styles.finish(figure, "The smaller the steps, the nearer the smoothed goodput is to the optimum")


if __name__ == "__main__":
    about = "The distance of smoothed goodput from x* as beta goes to 0."
    sys.exit(run("theorem1", about, experiment, draw, Config))
