"""Measures how soon each policy, and each way to estimate acceptance, recovers when acceptance changes.

Clients change their topics all at once: their rates of acceptance are dealt anew. Utility is that of the seeds' mean
goodput in single rounds, smoothed over a few; recovery is the first round from which on it stays near a level for a
while: near the new x* (within a share of log-utility per client), and near what the policy itself comes to before the
next change. Barrier rounds, by arrays (`simulation/arrays`). Beside it how exact the estimates are while nothing
changes, and how soon a client is believed that had fallen to length 0 for want of budget.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.arrays import rows
from experiments.simulation.arrays.optimum import geometric, optimum
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.steps import LessWithVariance, MoreWithChange, Rule
from experiments.simulation.arrays.worlds import ArraySettings, Worlds
from goodspeed.fair.policies.base import Floats

SMOOTHED = 5  # rounds
OURS = "gradient, weighed (default)"
SHOWN = (OURS, "Eq. (3), eta 0.02", "Eq. (3), eta 0.1", "less eta with variance", "fixed")
"""Variants in the picture: the default, a slow and a quick eta, the paper's rule, and no estimates at all."""

SHOWN_SMOOTHED = 25  # rounds, in the part of the picture in which the curves lie close together
STAYS = 10  # rounds for which a level must be kept to count as reached
SETTLED = 50  # rounds before a change that tell what a policy comes to


@dataclass(frozen=True)
class Variant:
    """A policy and its estimates; `low` and `high`, or `threshold`, make eta follow the errors."""

    name: str
    policy: str = "gradient"
    eta: float = 0.1
    weigh_evidence: bool = False
    threshold: float | None = None
    high: float | None = None

    def rule(self) -> Rule | None:
        if self.threshold is not None:
            return LessWithVariance(self.eta, self.threshold)
        return MoreWithChange(self.eta, self.high) if self.high is not None else None


@dataclass(frozen=True)
class Config:
    """One section of `configs/domain_shift.toml`."""

    num_seeds: int
    budget: int
    rounds_each: int  # between changes
    alphas: list[list[float]]  # of the clients, from each change on
    near: float  # of log-utility per client
    variants: list[Variant]
    fallen_rounds: int
    fallen_alphas: list[float]  # of the one client that changes: before and after
    own: tuple[str, ...] = ()  # variants of the user's own policies

    def with_policy(self, name: str) -> Config:
        """The same with one more policy to compare, which is told what `gradient` is told."""
        known = [variant.name for variant in self.variants]
        more = [] if name in known else [Variant(name, name, weigh_evidence=True)]
        return replace(self, variants=[*self.variants, *more], own=(*self.own, name))

    @property
    def num_clients(self) -> int:
        return len(self.alphas[0])


@dataclass(frozen=True)
class Course:
    """The course of one variant; arrays [rounds] and [rounds, clients]."""

    utility: Floats  # of the seeds' mean goodput, smoothed
    errors: Floats  # mean absolute error of the estimates


def begin(config: Config, variant: Variant, draws: IndependentDraws, budget: int) -> Worlds:
    settings = ArraySettings(
        num_clients=config.num_clients,
        budget=budget,
        eta=variant.eta,
        weigh_evidence=variant.weigh_evidence,
        num_worlds=config.num_seeds,
    )
    return Worlds(settings, rows.create(variant.policy, config.num_seeds), draws)


def step(worlds: Worlds, rule: Rule | None) -> None:
    """Runs a round, after which the rule sets eta by the errors of what was believed before."""
    believed = worlds.acceptance.copy()
    worlds.step()
    if rule is not None:
        worlds.eta = rule.eta(worlds.num_agreed / np.maximum(worlds.drafted, 1) - believed, worlds.drafted)


def course(config: Config, variant: Variant) -> Course:
    draws = IndependentDraws(config.alphas[0], range(config.num_seeds))
    worlds, rule = begin(config, variant, draws, config.budget), variant.rule()
    goodput, errors = [], []
    worlds.step()  # the prompts' round
    for alphas in config.alphas:
        draws.rates = np.array(alphas)[:, None]
        for _ in range(config.rounds_each):
            step(worlds, rule)
            goodput.append((worlds.accepted + 1.0).mean(axis=0))
            errors.append(np.abs(worlds.acceptance - alphas).mean())
    return Course(np.log(_smoothed(np.array(goodput), config.rounds_each)).sum(axis=1), np.array(errors))


def _smoothed(values: Floats, rounds_each: int, num_rounds: int = SMOOTHED) -> Floats:
    """Means [rounds, ...] over the last few rounds, none of them from before a change."""
    smoothed = np.empty_like(values)
    for at in range(len(values)):
        first = max(at - num_rounds + 1, at // rounds_each * rounds_each)
        smoothed[at] = values[first : at + 1].mean(axis=0)
    return smoothed


def recovery(utility: Floats, level: float) -> int | None:
    """Rounds after the change from which on the level is kept for a while; None if never."""
    kept = np.convolve(utility >= level, np.ones(STAYS), mode="valid") == STAYS
    return int(np.argmax(kept)) if kept.any() else None


def fallen_for_want_of_budget(config: Config, variant: Variant) -> float:
    """Mean rounds until the client's acceptance is believed to half of the change; one token for each client."""
    before, after = config.fallen_alphas
    others = [0.8] * (config.num_clients - 1)
    draws = IndependentDraws([before, *others], range(config.num_seeds))
    worlds, rule = begin(config, variant, draws, config.num_clients), variant.rule()
    needed = np.full(config.num_seeds, np.nan)
    for number in range(config.rounds_each + config.fallen_rounds):
        if number == config.rounds_each:
            draws.rates[0] = after
        step(worlds, rule)
        if number >= config.rounds_each:
            believed = np.isnan(needed) & (worlds.acceptance[:, 0] >= (before + after) / 2)
            needed[believed] = number - config.rounds_each + 1
    return float(np.where(np.isnan(needed), config.fallen_rounds, needed).mean())


def experiment(config: Config) -> Outcome:
    survival = [geometric(alphas, config.budget) for alphas in config.alphas]
    best = [optimum(curve, config.budget).utility for curve in survival]
    courses = {variant.name: course(config, variant) for variant in parts("courses", config.variants)}
    results = [_row(config, variant, courses[variant.name], best) for variant in parts("recoveries", config.variants)]
    findings = [
        Finding(f"{row['variant']}: rounds to within {config.near:.0%} of x*", row["to_optimum"])
        for row in results
        if row["to_optimum"] is not None
    ]
    findings += [Finding(f"{row['variant']}: mean error of settled estimates", row["settled_error"]) for row in results]
    findings += [
        Finding(f"{row['variant']}: rounds until a client without budget is believed", row["fallen"])
        for row in results
        if row["fallen"] is not None
    ]
    never = [row["variant"] for row in results if row["to_optimum"] is None]
    notes = [f"never within {config.near:.0%} of x* after one of the changes: {', '.join(never)}"] if never else []
    facts = {"optimum": best}
    return Outcome(rows=results, curves=_curves(courses), findings=findings, facts=facts, notes=notes)


def _curves(courses: dict[str, Course]) -> list[dict[str, Any]]:
    return [
        {"variant": name, "round": number, "utility": round(float(utility), 4), "error": round(float(error), 4)}
        for name, found in courses.items()
        for number, (utility, error) in enumerate(zip(found.utility, found.errors, strict=True))
    ]


def _row(config: Config, variant: Variant, found: Course, best: list[float]) -> dict[str, Any]:
    """Means over the changes; None where a level was not reached after one of them."""
    each, num = config.rounds_each, config.num_clients
    parts = [found.utility[at * each : (at + 1) * each] for at in range(1, len(config.alphas))]
    optimal = [recovery(part, level - num * config.near) for part, level in zip(parts, best[1:], strict=True)]
    own = [recovery(part, part[-SETTLED:].mean() - num * config.near) for part in parts]
    short = [(level - part[-SETTLED:].mean()) / num for part, level in zip(parts, best[1:], strict=True)]
    lost = [(level - part).sum() / num for part, level in zip(parts, best[1:], strict=True)]
    settled = [found.errors[(at + 1) * each - SETTLED : (at + 1) * each].mean() for at in range(len(config.alphas))]
    return {
        "variant": variant.name,
        "policy": variant.policy,
        "to_optimum": _mean(optimal),
        "to_own_level": _mean(own),
        "settled_shortfall": float(np.mean(short)),  # log-utility per client below x*
        "lost": float(np.mean(lost)),  # the same, summed over the rounds after a change
        "settled_error": float(np.mean(settled)),
        "fallen": fallen_for_want_of_budget(config, variant) if variant.policy == "gradient" else None,
    }


def _mean(rounds: list[int | None]) -> float | None:
    known = [number for number in rounds if number is not None]
    return float(np.mean(known)) if len(known) == len(rounds) else None


def draw(config: Config, results: Results) -> Figure:
    """Log-utility near the best possible one, over rounds."""
    figure = new_figure(10.0, 5.0)
    axes = figure.subplots()
    for name, number in styles.numbers((*SHOWN, *config.own), OURS).items():
        own = [row for row in results.curves if row["variant"] == name]
        utility = np.array([row["utility"] for row in own]) / config.num_clients
        smoothed = _smoothed(utility, config.rounds_each, SHOWN_SMOOTHED)
        axes.plot([row["round"] for row in own], smoothed, label=name, **styles.curve(number, len(own)))
    best = [optimum(geometric(alphas, config.budget), config.budget).utility for alphas in config.alphas]
    levels = [level / config.num_clients for level in best]
    for at, level in enumerate(levels):
        ends = at * config.rounds_each, (at + 1) * config.rounds_each
        axes.hlines(level, *ends, colors="black", linestyles="dashed", label="" if at else "the best possible, x*")
    axes.set_ylim(min(levels) - 0.07, max(levels) + 0.01)
    axes.set(xlabel="round; acceptance changes where curves fall")
    axes.set(ylabel=f"log-utility per client, mean of {SHOWN_SMOOTHED} rounds")
    return styles.finish(
        figure, "After acceptance has changed, ours is the first to be near the best possible again", OURS
    )


def main() -> int:
    return run("domain_shift", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
