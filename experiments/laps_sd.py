"""LAPS-SD's figures 1, 5, 6 and 7: how soon texts are done when the order follows perceived service.

Requests come almost at once, as in the paper, or in a stream, and wait for one place or for eight. Rounds are computed
from datasheets, lengths are of recorded services, and acceptance is recorded. The orders are those of the
verify node (`verify_node/scheduler/orders`) and their rivals (`simulation/queueing/rivals.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.order.laps_sd_claims import BEST_QUEUES, error_of, fig1, findings
from experiments.order.laps_sd_runs import (
    POLICIES,
    Cell,
    Settings,
    best_las,
    chosen,
    mean_seconds,
    measured,
    requests,
    times,
)

OURS = "laps"
ORDERS_SHOWN = {
    OURS: "laps",
    "laps_learned": "laps, lengths learned by the verify node",
    "fcfs": "first come, first served",
    "las": "least attained service",
    "lp_sjf": "shortest predicted length first",
}
"""Those in the picture, beside the optimum."""


@dataclass(frozen=True)
class Config(Settings):
    """One section of `configs/laps_sd.toml`."""

    num_queues: int  # K
    las: list[tuple[int, float, float]]  # K, M and S_1 that LAS is tried with; the best of a kind count
    numbers: list[int]  # of requests for each place
    window_s: float  # in which they come
    seeds: int
    places: dict[str, list[int]]  # for each number of places the numbers of requests that are served there
    queues: list[int]  # K of Fig. 6, with these M and S_1
    queues_growth: float
    queues_first_s: float
    headline: str  # the kind that JSON's mean_latency is of
    streams: dict[str, float]  # kinds that come in a stream, and its load at one place
    stream_number: int


def experiment(config: Config) -> Outcome:
    rows = served("requests at once", config, bursts(config))
    streams = served("streams", config, stream_cells(config))
    small = replace(config, growth=config.queues_growth, first_s=config.queues_first_s)
    curves = [
        measured(small, Cell(config.headline, number, 1, config.window_s, seed), policy, num_queues)
        for number in parts("numbers of queues", [number for number in BEST_QUEUES if number in config.numbers])
        for num_queues in config.queues
        for policy in ("laps", "laps_paper")
        for seed in range(config.seeds)
    ]
    return Outcome(
        rows=rows + streams,
        curves=curves,
        findings=findings(rows, streams, curves),
        facts=facts(config, rows, streams, curves),
    )


def served(what: str, config: Config, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The rows of all policies in these cells."""
    rows = []
    for cell in parts(what, cells):
        for policy in POLICIES:
            tried = config.las if policy == "las" else [(config.num_queues, config.growth, config.first_s)]
            for num_queues, growth, first_s in tried:
                rows.append(measured(replace(config, growth=growth, first_s=first_s), cell, policy, num_queues))
    return best_las(rows)


def bursts(config: Config) -> list[Cell]:
    """Requests that come almost at once."""
    return [
        Cell(kind, number, int(places), config.window_s, seed)
        for places, numbers in config.places.items()
        for kind in config.kinds
        for number in numbers
        for seed in range(config.seeds)
    ]


def stream_cells(config: Config) -> list[Cell]:
    """Requests that come at any time, at so many that one place is busy for the given share of it."""
    cells = []
    for kind, load in config.streams.items():
        for seed in range(config.seeds):
            cell = Cell(kind, config.stream_number, 1, 1.0, seed)
            work_s = sum(len(one.accepted) for one in requests(config, cell)) * times(config).round_s(1, 200)
            cells.append(Cell(kind, config.stream_number, 1, work_s / load, seed))
    return cells


def facts(
    config: Config,
    rows: Sequence[dict[str, Any]],
    streams: Sequence[dict[str, Any]],
    curves: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    def by_policy(these: Sequence[dict[str, Any]], **where: object) -> dict[str, float]:
        return {policy: mean_seconds(these, policy=policy, **where) for policy in POLICIES}

    places = [int(name) for name in config.places]
    of = f"seconds; batch 1, K = {config.num_queues}, {config.headline}, over {config.numbers} requests at once"
    return {
        "mean_latency": by_policy(rows, places=1, kind=config.headline),
        "mean_latency_of": of,
        "by_batch": {
            place: {kind: by_policy(rows, places=place, kind=kind) for kind in config.kinds} for place in places
        },
        "by_number": {
            number: by_policy(rows, places=1, kind=config.headline, number=number) for number in config.numbers
        },
        "by_queues": {
            policy: {
                number: {k: mean_seconds(curves, policy=policy, number=number, queues=k) for k in config.queues}
                for number in sorted({row["number"] for row in curves})
            }
            for policy in ("laps", "laps_paper")
        },
        "streams": {kind: by_policy(streams, kind=kind) for kind in config.streams},
        "fig1": fig1(),
        "estimate_error": error_of(rows, config.headline, column="estimate_error"),
        "estimate_errors": {kind: error_of(rows, kind, column="estimate_error") for kind in config.kinds},
        "errors_with_prediction": {kind: error_of(rows, kind) for kind in config.kinds},
    }


def draw(config: Config, results: Results) -> Figure:
    """Latency at one place over the number of requests (Fig. 5), a panel for each kind."""
    figure = new_figure(3.4 * len(config.kinds), 4.2)
    for panel, kind in zip(figure.subplots(1, len(config.kinds), squeeze=False).flat, config.kinds, strict=True):
        own = chosen(results.rows, places=1, kind=kind, window_s=config.window_s)
        for policy, number in styles.numbers(ORDERS_SHOWN, OURS).items():
            seconds = [mean_seconds(own, policy=policy, number=requests) for requests in config.numbers]
            panel.plot(config.numbers, seconds, label=ORDERS_SHOWN[policy], **styles.curve(number))
        seconds = [mean_seconds(own, policy="optimal", number=requests) for requests in config.numbers]
        panel.plot(config.numbers, seconds, "k--", linewidth=1.0, label="least true time left, at no cost")
        panel.set(title=kind, xlabel="requests", ylabel="mean latency, s")
    title = "Where lengths are predicted, ours ends texts sooner than first come, first served"
    return styles.finish(figure, title, ORDERS_SHOWN[OURS])


def main() -> int:
    return run("laps_sd", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
