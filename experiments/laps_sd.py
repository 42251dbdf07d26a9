"""LAPS-SD's figures 1, 5, 6 and 7: how soon texts are done when the order follows perceived service.

Requests come almost at once, as in the paper, and wait for one place or for eight at the nodes' own state machines
(`simulation/few_places.py`). Rounds are computed from datasheets, lengths are of recorded services, and acceptance is
recorded. The orders are those of the verify node (`verify_node/scheduler/orders`) and their rivals
(`simulation/rival_orders.py`). LAPS has the same queues everywhere; LAS is tried with several, of which the best count.
Nobody's wait is bounded by aging.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.few_places import Kind, Remaining, Request, Service, history, make, serve
from experiments.simulation.presets import LLAMA_7B, LLAMA_68M, Device, roofline
from experiments.simulation.rival_orders import bounds, create
from goodspeed.fair.lengths import OutputLengths
from verify_node.scheduler.orders.base import Job, Order
from verify_node.scheduler.orders.laps import NUM_ROUNDS

Row: TypeAlias = dict[str, Any]

L20 = Device(bytes_per_s=864e9, flops=119.5e12)  # the paper's GPU

OURS = "laps"
POLICIES = ("fcfs", "las", "lp_sjf", OURS, "laps_paper", "laps_learned")
"""First come; least attained service; shortest predicted length, which takes nobody's place away; LAPS-SD with
predicted lengths, the same in the paper's own form, and with lengths that are learned from texts that are over."""

SHOWN = {
    OURS: "laps",
    "laps_learned": "laps, lengths learned",
    "fcfs": "first come, first served",
    "las": "least attained service",
    "lp_sjf": "shortest predicted length first",
}
"""Those in the picture."""

NEVER_S = 1e9
FIG1_S = {"R1": 0.2, "R2": 0.5, "R3": 0.15}
FIG1_TOKENS = {"R1": 10, "R2": 5, "R3": 12}
"""R3's tokens are not stated; any number above 10 gives the order that the paper shows."""

BEST_QUEUES = {10: 6, 30: 4}
"""Fig. 6(a): the best K by the number of requests."""

PAPER_ERROR = {"chat": 0.0763, "code": 0.1121, "reasoning": 0.0851}
MOST_OF_LAS, LEAST_OF_LP_SJF, MOST_ERROR = 0.69, 1.47, 0.07
"""Fig. 5 compares with LAS and LP-SJF; Fig. 7 has the errors, 0.0684 in the mean, with predicted lengths."""


@dataclass(frozen=True)
class Config:
    """One section of `configs/laps_sd.toml`."""

    kinds: dict[str, Kind]
    headline: str  # the kind that JSON's mean_latency is of
    numbers: list[int]  # of requests at one place
    places: dict[str, list[int]]  # for each number of places, requests for each of them
    window_s: float  # in which they come
    seeds: int
    processes: int  # 0: one on each core
    num_drafted: int  # n
    prediction_error: float  # sigma of the log-normal error of predicted lengths
    history: int  # texts that were over before, from which lengths are learned
    num_queues: int  # K
    growth: float  # M
    first_s: float  # S_1
    las: list[tuple[int, float, float]]  # K, M and S_1 that LAS is tried with; the best of a kind count
    num_rounds: int  # gamma
    tolerance: float  # delta
    queues: list[int]  # K of Fig. 6, with these M and S_1
    queues_growth: float
    queues_first_s: float
    recordings: str = ""  # a file of recorded texts; empty: the shipped one


@dataclass(frozen=True)
class Cell:
    """Requests, and the order in which they are served."""

    kind: str
    number: int  # of requests, for each place
    places: int
    seed: int
    policy: str
    queues: tuple[int, float, float]  # K, M and S_1


def experiment(config: Config) -> Outcome:
    rows = best_las(each("services", partial(measured, config), list(cells(config)), config.processes))
    curves = each("numbers of queues", partial(measured, config), list(queue_cells(config)), config.processes)
    return Outcome(rows=rows, curves=curves, findings=findings(rows, curves), facts=facts(config, rows, curves))


def cells(config: Config) -> Iterator[Cell]:
    own = (config.num_queues, config.growth, config.first_s)
    for places, numbers in config.places.items():
        for kind in config.kinds:
            for number in numbers:
                for seed in range(config.seeds):
                    for policy in POLICIES:
                        for queues in config.las if policy == "las" else [own]:
                            yield Cell(kind, number, int(places), seed, policy, queues)


def queue_cells(config: Config) -> Iterator[Cell]:
    for number in (number for number in BEST_QUEUES if number in config.numbers):
        for num_queues in config.queues:
            for seed in range(config.seeds):
                queues = (num_queues, config.queues_growth, config.queues_first_s)
                yield Cell(config.headline, number, 1, seed, OURS, queues)


def requests(config: Config, cell: Cell) -> list[Request]:
    """The same ones for every policy."""
    random, kind = Random(f"{cell.seed} {cell.kind} {cell.number}"), config.kinds[cell.kind]
    number = cell.number * cell.places
    return make(kind, number, config.window_s, config.prediction_error, random, config.recordings)


def measured(config: Config, cell: Cell) -> Row:
    """One row of the results."""
    service = Service(roofline(LLAMA_7B, L20), roofline(LLAMA_68M, L20), config.num_drafted, cell.places)
    done = serve(
        service,
        requests(config, cell),
        order_of(config, cell),
        remaining(config, cell),
        num_rounds=config.num_rounds,
        tolerance=config.tolerance,
    )
    guesses = [(work.guess, work.seconds) for work in done.works if work.guess is not None]
    return {
        "kind": cell.kind,
        "number": cell.number,
        "places": cell.places,
        "seed": cell.seed,
        "policy": cell.policy,
        "queues": cell.queues[0],
        "growth": cell.queues[1],
        "first_s": cell.queues[2],
        "mean_latency_s": float(np.mean(done.latencies_s)),
        "p99_latency_s": float(np.quantile(done.latencies_s, 0.99)),
        "preempted": done.num_preempted,
        "perceptible": len(guesses) / len(done.works),
        "estimate_error": _error([(known, took_s) for (known, _), took_s in guesses]),
        "error_with_prediction": _error([(predicted, took_s) for (_, predicted), took_s in guesses]),
    }


def order_of(config: Config, cell: Cell) -> Order:
    aging = {"aging_s": NEVER_S}
    if cell.policy == "fcfs":
        return create("fcfs")
    if cell.policy == "lp_sjf":
        return create("sjf", **aging)
    queues = {"bounds": bounds(*cell.queues)} | aging
    if cell.policy == "las":
        return create("las", **queues)
    perception = {"num_rounds": config.num_rounds, "tolerance": config.tolerance}
    return create("laps", **queues, **perception, guesses=cell.policy != "laps_paper")


def remaining(config: Config, cell: Cell) -> Remaining:
    """The tokens that are left of a text, as the policy's order is told."""
    if cell.policy != "laps_learned":
        return lambda request, num_written: max(1, request.predicted_tokens - num_written)
    lengths = OutputLengths()
    for prompt, output in history(config.kinds[cell.kind], config.history, Random(f"before {cell.seed}")):
        lengths.observe(output, prompt)
    return lambda request, num_written: lengths.remaining(num_written, request.recorded_prompt)


def _error(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Mean absolute error, as a share of what was true; None without any."""
    return float(np.mean([abs(guessed / true - 1.0) for guessed, true in pairs])) if pairs else None


def best_las(rows: Sequence[Row]) -> list[Row]:
    """Leaves out LAS but with the queues that are the best in hindsight for each kind and number of places."""
    tried: dict[tuple[str, int], dict[tuple[float, ...], list[Row]]] = {}
    for row in chosen(rows, policy="las"):
        tried.setdefault((row["kind"], row["places"]), {}).setdefault(_queues(row), []).append(row)
    best = {where: min(own, key=lambda queues: mean_seconds(own[queues])) for where, own in tried.items()}
    return [row for row in rows if row["policy"] != "las" or _queues(row) == best[row["kind"], row["places"]]]


def _queues(row: Row) -> tuple[float, ...]:
    return row["queues"], row["growth"], row["first_s"]


def mean_seconds(rows: Sequence[Row], **where: object) -> float:
    """The mean latency over all rows that are so."""
    return float(np.mean([row["mean_latency_s"] for row in chosen(rows, **where)]))


def chosen(rows: Sequence[Row], **where: object) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


# -- claims ------------------------------------------------------------------------------------------------------------


def fig1() -> dict[str, float]:
    """Mean latencies of the paper's example in milliseconds; its times are fed to the orders directly."""
    jobs = [
        Job(
            job_id=name,
            arrived_at=number * 1e-6,
            waits_since=0.0,
            remaining_tokens=1,
            round_s=FIG1_S[name],
            rates=(0.5,) * NUM_ROUNDS,
        )
        for number, name in enumerate(FIG1_S)
    ]
    by_length = [Job(job_id=job.job_id, arrived_at=0.0, remaining_tokens=FIG1_TOKENS[str(job.job_id)]) for job in jobs]
    ranked = {
        "fcfs": create("fcfs").rank(jobs, 0.0),
        "sjf_length": create("sjf").rank(by_length, 0.0),
        "laps": create("laps").rank(jobs, 0.0),
    }
    return {
        name: 1000 * float(np.mean(np.cumsum([FIG1_S[str(job.job_id)] for job in order])))
        for name, order in ranked.items()
    }


def error_of(rows: Sequence[Row], kind: str, column: str) -> float | None:
    """Mean error of the estimates of LAPS at one place; None where there were none.

    column: "error_with_prediction", or "estimate_error" with the texts' true lengths.
    """
    found = [row[column] for row in chosen(rows, policy=OURS, places=1, kind=kind)]
    known = [error for error in found if error is not None]
    return float(np.mean(known)) if known else None


def best_queues(curves: Sequence[Row], number: int) -> int:
    own = chosen(curves, number=number)
    return int(min({row["queues"] for row in own}, key=lambda k: (mean_seconds(own, queues=k), k)))


def findings(rows: Sequence[Row], curves: Sequence[Row]) -> list[Finding]:
    found = [
        Finding(f"Fig. 1, {name}, ms", value, paper, "", abs(value - paper) < 1.0)
        for (name, value), paper in zip(fig1().items(), (583.0, 683.0, 450.0), strict=True)
    ]
    for places, kind in dict.fromkeys((row["places"], row["kind"]) for row in rows):
        found += ratios(f"batch {places}, {kind}", chosen(rows, places=places, kind=kind), is_one=places == 1)
    for number in sorted({row["number"] for row in curves}):
        best, wanted = best_queues(curves, number), BEST_QUEUES[number]
        found.append(Finding(f"best K, {number} requests", best, wanted, f"{wanted}", best == wanted))
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for what, column in (("predicted", "error_with_prediction"), ("true", "estimate_error")):
            if (error := error_of(rows, kind, column)) is not None:
                name = f"error of estimated times, {kind}, lengths {what}"
                found.append(Finding.at_most(name, error, MOST_ERROR, PAPER_ERROR.get(kind)))
    return found


def ratios(what: str, rows: Sequence[Row], *, is_one: bool) -> list[Finding]:
    """LAPS beside the others in one setting. is_one: at one place, where the paper's figures are wanted."""
    seconds = {policy: mean_seconds(rows, policy=policy) for policy in POLICIES}
    most, least = (MOST_OF_LAS, LEAST_OF_LP_SJF) if is_one else (1.0, 1.0)
    paper = (MOST_OF_LAS, LEAST_OF_LP_SJF) if is_one else (None, None)
    found = []
    for laps in (OURS, "laps_paper"):
        of_las, of_lp_sjf = seconds[laps] / seconds["las"], seconds["lp_sjf"] / seconds[laps]
        found += [
            Finding.at_most(f"{what}: {laps} / las", of_las, most, paper[0]),
            Finding.at_least(f"{what}: lp_sjf / {laps}", of_lp_sjf, least, paper[1]),
        ]
    learned = seconds["laps_learned"] / seconds["fcfs"]
    found.append(Finding(f"{what}: laps_learned / fcfs", learned, None, "below 1", learned < 1.0))
    return [*found, Finding(f"{what}: laps / fcfs", seconds[OURS] / seconds["fcfs"])]


def facts(config: Config, rows: Sequence[Row], curves: Sequence[Row]) -> dict[str, Any]:
    def by_policy(**where: object) -> dict[str, float]:
        return {policy: mean_seconds(rows, policy=policy, **where) for policy in POLICIES}

    of = f"seconds; batch 1, K = {config.num_queues}, {config.headline}, over {config.numbers} requests at once"
    by_queues = {
        number: {k: mean_seconds(curves, number=number, queues=k) for k in config.queues}
        for number in sorted({row["number"] for row in curves})
    }
    return {
        "mean_latency": by_policy(places=1, kind=config.headline),
        "mean_latency_of": of,
        "by_batch": {
            int(places): {kind: by_policy(places=int(places), kind=kind) for kind in config.kinds}
            for places in config.places
        },
        "by_number": {number: by_policy(places=1, kind=config.headline, number=number) for number in config.numbers},
        "by_queues": {OURS: by_queues},
        "fig1": fig1(),
        "estimate_error": error_of(rows, config.headline, "estimate_error"),
        "estimate_errors": {kind: error_of(rows, kind, "estimate_error") for kind in config.kinds},
        "errors_with_prediction": {kind: error_of(rows, kind, "error_with_prediction") for kind in config.kinds},
    }


def draw(config: Config, results: Results) -> Figure:
    """Latency at one place over the number of requests (Fig. 5), a panel for each kind."""
    figure = new_figure(3.4 * len(config.kinds), 4.2)
    for panel, kind in zip(figure.subplots(1, len(config.kinds), squeeze=False).flat, config.kinds, strict=True):
        own = chosen(results.rows, places=1, kind=kind)
        for policy, number in styles.numbers(SHOWN, OURS).items():
            seconds = [mean_seconds(own, policy=policy, number=requests) for requests in config.numbers]
            panel.plot(config.numbers, seconds, label=SHOWN[policy], **styles.curve(number))
        panel.set(title=kind, xlabel="requests", ylabel="mean latency, s")
    title = "Where lengths are predicted, ours ends texts sooner than first come, first served"
    return styles.finish(figure, title, SHOWN[OURS])


if __name__ == "__main__":
    sys.exit(run("laps_sd", __doc__ or "", experiment, draw, Config))
