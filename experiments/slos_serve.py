"""SLOs-Serve's figures 9 and 14: how many requests per second keep their service levels, with promises and without.

Requests come as they did to two real services, have the lengths of the paper's data sets and its service levels: a
first token within a multiple of the time in which the prompt is read alone, and a time per token of every ten tokens.
The capacity of a policy is the highest rate at which at most a tenth of all requests miss either, found by bisection.
Whoever is promised nothing counts as much as the others. Rounds take what the paper's authors have of OPT-6.7B on an
A100; our drafts are made elsewhere. Our nodes' state machines run as they are, the paper's baselines as in
`simulation/open_loop/rivals.py`, without nodes and messages: a hundred times as quick, so a run is ours nearly alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import product

from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.open_loop.crowd import scheduling_ms
from experiments.simulation.open_loop.threshold import Tried, highest
from experiments.slo.admission_policies import BASELINES, NO_PROMISES, OURS, VLLM
from experiments.slo.slos_serve_claims import ALLOWED, FEW, FEW_SCENARIO, facts, findings, ranges, ratios
from experiments.slo.slos_serve_worlds import A100, Cell, Config, Row, load, may_serve, rivals

PER_S = 1000
"""Rates are tried in thousandths of a request per second."""

STEP = 1.12
"""By so much rates differ until one held and one failed."""

MOST_PER_S = 60.0
"""No rate above is tried: prompts alone would take twice the time that there is."""

NOTES = [
    "A request counts if its first token and every ten tokens are in time; the rest counts with the last ten.",
    "A baseline is as good as the best of its variants: memory reserved or preempted, lengths, DistServe's devices.",
]


def experiment(config: Config) -> Outcome:
    measured = each("capacities", partial(measure, config), list(cells(config)), config.processes)
    rows, curves = [row for row, _ in measured], [load for _, loads in measured for load in loads]
    told = facts(rows, curves) | {"scheduler_ms": scheduling_ms(A100, config.crowds, config.seed)}
    return Outcome(rows=rows, curves=curves, findings=findings(told), facts=told, notes=NOTES)


def cells(config: Config) -> Iterator[Cell]:
    for name, scenario in config.scenarios.items():
        for window, policy in product(range(len(scenario.begins_s)), (*config.policies, *BASELINES)):
            if may_serve(scenario, policy):
                yield Cell(name, policy, window=window)


def measure(config: Config, cell: Cell) -> tuple[Row, list[Row]]:
    """The capacities of a policy in its best variant, with what it made of that load; and every load tried.

    A variant that fails with the load that another one holds is not searched.
    """
    found: list[tuple[Row, list[Row]]] = []
    number, guess = 0, round(PER_S * config.scenarios[cell.scenario].requests_per_s)
    for variant in rivals(config, cell) if cell.policy in BASELINES else [""]:
        tried = Tried(partial(_load, config, cell, variant))
        if number and tried.violations(number) > ALLOWED:
            continue
        most = round(PER_S * MOST_PER_S)
        number = highest(tried.violations, ALLOWED, start=number or guess, most=most, ratio=config.ratio, step=STEP)
        few = 0
        if number and cell.scenario == FEW_SCENARIO and not cell.window:
            start = max(1, round(number / STEP))
            few = highest(tried.violations, FEW, start=start, most=number, ratio=config.ratio, step=STEP)
        found.append((tried.best(number) | {"capacity": number / PER_S, "capacity_few": few / PER_S}, tried.rows))
    return max(found, key=lambda pair: (pair[0]["capacity"], pair[0]["capacity_few"]))


def _load(config: Config, cell: Cell, variant: str, number: int) -> Row:
    return load(config, cell, number / PER_S, variant, ALLOWED)


def draw(_: Config, results: Results) -> Figure:
    """Capacities over that of vLLM, by scenario, with the range over the windows."""
    figure = new_figure(10.0, 4.8)
    axes = figure.subplots()
    rows = results.rows
    scenarios, served = list(dict.fromkeys(one["scenario"] for one in rows)), {one["policy"] for one in rows}
    shown = styles.numbers([one for one in (OURS, NO_PROMISES, *BASELINES) if one in served], OURS)
    width = 0.8 / len(shown)
    for place, (policy, number) in enumerate(shown.items()):
        over = ranges(ratios(rows, "capacity", [VLLM], ours=policy))
        places = [scenarios.index(name) + width * (place - (len(shown) - 1) / 2) for name in over]
        heights = [one.mean for one in over.values()]
        errors = [[one.mean - one.least for one in over.values()], [one.most - one.mean for one in over.values()]]
        axes.bar(places, heights, width, label=policy, yerr=errors, **styles.bar(number))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(scenarios)), scenarios)
    axes.set_ylabel("requests/s with at most 10 % missed,\nover vLLM's")
    return styles.finish(figure, "Requests that keep their service levels, by every ten tokens", OURS)


def main() -> int:
    return run("slos_serve", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
