"""SLOs-Serve's figures 9 and 14: how many requests per second keep their service levels, with promises and without.

Requests come as they did to two real services, have the lengths of the paper's data sets and its service levels: a
first token within a multiple of the time in which the prompt is read alone, and a mean time per token. The capacity of
a policy is the highest rate at which at most a tenth of all requests miss either, found by bisection. Whoever is
promised nothing counts as much as the others. Rounds take what the paper's authors have of OPT-6.7B on an A100; drafts
are made elsewhere, and baselines wait for them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.open_loop.crowd import scheduling_ms
from experiments.simulation.open_loop.threshold import Tried, highest
from experiments.slo.admission_policies import EDF, FAMILIES, NO_PROMISES, OURS, POLICIES, family
from experiments.slo.slos_serve_claims import ALLOWED, FEW, LEAST_CAPACITY, facts, findings
from experiments.slo.slos_serve_worlds import A100, Cell, Config, Row, load

PER_S = 100
"""Rates are tried in hundredths of a request per second."""

MOST_PER_S = 30.0
"""No rate above is tried: prompts alone would take twice the time that there is."""

NOTES = [
    "A request counts if its first token and its mean time per token are in time; the paper looks at every 10 tokens.",
    "A ratio is the capacity of `dp` over the better of both baselines, each with its best fixed length.",
]


def experiment(config: Config) -> Outcome:
    measured = each("capacities", partial(measure, config), list(cells(config)), config.processes)
    rows, curves = [row for row, _ in measured], [load for _, loads in measured for load in loads]
    told = facts(rows) | {"scheduler_ms": scheduling_ms(A100, config.crowds, config.seed)}
    return Outcome(rows=rows, curves=curves, findings=findings(told), facts=told, notes=NOTES)


def cells(config: Config) -> Iterator[Cell]:
    for scenario in config.scenarios:
        yield from (Cell(scenario, policy) for policy in POLICIES)
    for latency_s, scenario in product(config.far_s, config.far_scenarios):
        yield from (Cell(scenario, policy, latency_s) for policy in config.far_policies)


def measure(config: Config, cell: Cell) -> tuple[Row, list[Row]]:
    """The capacities of a policy, with what it made of that load (or of the lowest one); and every load tried."""
    tried = Tried(lambda number: load(config, cell, number / PER_S))
    guess, most = round(PER_S * config.scenarios[cell.scenario].requests_per_s), round(PER_S * MOST_PER_S)
    number = highest(tried.violations, ALLOWED, start=guess, most=most, ratio=config.ratio)
    few = highest(tried.violations, FEW, start=max(1, number // 2), most=number, ratio=config.ratio) if number else 0
    capacities = {"capacity": number / PER_S, "capacity_few": few / PER_S}
    return tried.best(number) | capacities, tried.rows


def draw(_: Config, results: Results) -> Figure:
    """Capacities over that of the better baseline, by scenario."""
    figure = new_figure(10.0, 4.8)
    axes = figure.subplots()
    near: dict[str, dict[str, float]] = {}
    for one in results.rows:
        if not one["latency_ms"]:
            of = family(one["policy"])  # a baseline is as good as the best of its lengths
            found = near.setdefault(one["scenario"], {})
            found[of] = max(found.get(of, 0.0), one["capacity"])
    shown = styles.numbers([OURS, EDF, NO_PROMISES, *FAMILIES], OURS)
    better = {scenario: max(LEAST_CAPACITY, *(found[of] for of in FAMILIES)) for scenario, found in near.items()}
    width = 0.8 / len(shown)
    for place, (policy, number) in enumerate(shown.items()):
        places = np.arange(len(near)) + width * (place - (len(shown) - 1) / 2)
        heights = [found[policy] / better[scenario] for scenario, found in near.items()]
        axes.bar(places, heights, width, label=policy, **styles.bar(number))
    axes.axhline(1.0, color="black", linewidth=0.8, label="the better baseline")
    axes.set_xticks(range(len(near)), list(near))
    axes.set_ylabel("requests/s with at most 10 % missed,\nover the better baseline's")
    title = "In every scenario promises keep the service levels of more requests than the better baseline does"
    return styles.finish(figure, title, OURS)


def main() -> int:
    return run("slos_serve", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
