"""Fleets of verify nodes: the capacity of 1 to 64 replicas, and what sending requests on is worth.

Requests, service levels and rounds are those of `slos_serve`, and so is what a capacity is: the highest rate at which
at most a tenth of all requests miss their level, found by bisection. Every client has a home replica; what is declined
there goes on to another, by what replicas have told of themselves (`fits`), to the next one as in SLOs-Serve's paper
(`ring`), or nowhere (`none`). Then what a million draft nodes would take.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.open_loop.threshold import Tried, highest
from experiments.slo.fleet_claims import CURVE, FITS, facts, findings
from experiments.slo.fleet_regions import million
from experiments.slo.fleet_worlds import NONE, Cell, Config, Row, fairness, load
from experiments.slo.slos_serve_claims import ALLOWED

PER_S = 100
"""Rates are tried in hundredths of a request per second and replica."""

MOST_PER_S = 60.0
CAPACITY = "capacity of the fleet"

NOTES = ["A capacity is in requests/s of the whole fleet; what is known of other replicas is up to a second old."]


def experiment(config: Config) -> Outcome:
    order = sorted(cells(config), key=lambda cell: -cell.replicas)  # the longest first, and no core idles
    measured = dict(zip(order, each("capacities", partial(measure, config), order, config.processes), strict=True))
    rows = [measured[cell][0] for cell in cells(config)]
    curves = [load for cell in cells(config) for load in measured[cell][1]]
    told: dict[str, Any] = facts(rows)
    one = told["replicas"][1]
    fair = each("fairness", partial(_fairness, config, config.fairness.share * one), [FITS, NONE], config.processes)
    largest = max((row for row in rows if row["study"] == CURVE), key=lambda row: int(row["replicas"]))
    told["fairness"] = {row["routing"]: row for row in fair}
    told["million"] = million(config.million, largest["capacity"] / largest["replicas"], largest["hops"])
    return Outcome(rows=rows, curves=curves, findings=findings(told), facts=told, notes=NOTES)


def cells(config: Config) -> Iterator[Cell]:
    """One replica sends nothing on, so it is looked at once."""
    for name, study in config.studies.items():
        for number in study.replicas:
            yield from (Cell(name, number, routing) for routing in study.routings[: 1 if number == 1 else None])


def measure(config: Config, cell: Cell) -> tuple[Row, list[Row]]:
    """The capacity of a fleet, with what it made of that load (or of the lowest one); and every load tried."""
    tried = Tried(lambda number: load(config, cell, number / PER_S))
    guess, most = round(PER_S * config.studies[cell.study].requests_per_s), round(PER_S * MOST_PER_S)
    number = highest(tried.violations, ALLOWED, start=guess, most=most, ratio=config.ratio)
    capacity = {"capacity": cell.replicas * number / PER_S}
    return tried.best(number) | capacity, tried.rows


def _fairness(config: Config, requests_per_s: float, routing: str) -> Row:
    return fairness(config, routing, requests_per_s)


def draw(_: Config, results: Results) -> Figure:
    """The capacity over the number of replicas, beside a linear one."""
    figure = new_figure(6.4, 4.8)
    axes = figure.subplots()
    own = sorted((row for row in results.rows if row["study"] == CURVE), key=lambda row: int(row["replicas"]))
    numbers, found = [row["replicas"] for row in own], [row["capacity"] for row in own]
    axes.plot(numbers, [number * found[0] for number in numbers], color="black", linewidth=0.8, label="linear")
    axes.plot(numbers, found, label=CAPACITY, **styles.curve(0))
    axes.set(xscale="log", yscale="log", xlabel="replicas", ylabel="requests/s with at most 10 % missed")
    axes.set_xticks(numbers, [str(number) for number in numbers], minor=False)
    axes.minorticks_off()
    return styles.finish(figure, "The capacity of a fleet grows in proportion to its replicas", CAPACITY)


def main() -> int:
    return run("fleet", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
