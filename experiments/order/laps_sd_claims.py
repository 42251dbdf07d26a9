"""Claims of LAPS-SD's paper beside the experiment's rows; and its Fig. 1, the only example that runs here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.harness.experiment import Finding
from experiments.order.laps_sd_runs import POLICIES, chosen, mean_seconds
from experiments.simulation.queueing.rivals import create
from verify_node.scheduler.orders.base import Job
from verify_node.scheduler.orders.laps import NUM_ROUNDS

FIG1_S = {"R1": 0.2, "R2": 0.5, "R3": 0.15}
FIG1_TOKENS = {"R1": 10, "R2": 5, "R3": 12}
"""R3's tokens are not stated; any number above 10 gives the order that the paper shows."""

BEST_QUEUES = {10: 6, 30: 4}
"""Fig. 6(a): the best K by the number of requests."""

PAPER_ERROR = {"chat": 0.0763, "code": 0.1121, "reasoning": 0.0851}
MOST_OF_LAS, LEAST_OF_LP_SJF, MOST_ERROR = 0.69, 1.47, 0.07
"""Fig. 5 compares with LAS and LP-SJF; Fig. 7 has the errors, 0.0684 in the mean, with predicted lengths."""


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


def error_of(
    rows: Sequence[dict[str, Any]], kind: str, policy: str = "laps", column: str = "error_with_prediction"
) -> float | None:
    """Mean error of the estimates of LAPS at one place; None where there were none.

    column: "estimate_error" is given the texts' true lengths.
    """
    found = [row[column] for row in chosen(rows, policy=policy, places=1, kind=kind)]
    known = [error for error in found if error is not None]
    return float(np.mean(known)) if known else None


def best_queues(curves: Sequence[dict[str, Any]], policy: str, number: int) -> int:
    own = chosen(curves, policy=policy, number=number)
    return int(min({row["queues"] for row in own}, key=lambda k: (mean_seconds(own, queues=k), k)))


def findings(
    rows: Sequence[dict[str, Any]],
    streams: Sequence[dict[str, Any]],
    curves: Sequence[dict[str, Any]],
) -> list[Finding]:
    found = [
        Finding(f"Fig. 1, {name}, ms", value, paper, "", abs(value - paper) < 1.0)
        for (name, value), paper in zip(fig1().items(), (583.0, 683.0, 450.0), strict=True)
    ]
    for place, kind in dict.fromkeys((row["places"], row["kind"]) for row in rows):
        found += ratios(f"batch {place}, {kind}", chosen(rows, places=place, kind=kind), is_one=place == 1)
    for kind in dict.fromkeys(row["kind"] for row in streams):
        found += ratios(f"stream, {kind}", chosen(streams, kind=kind), is_one=True)
    for number in sorted({row["number"] for row in curves}):
        for policy in ("laps", "laps_paper"):
            best = best_queues(curves, policy, number)
            wanted = BEST_QUEUES[number]
            what = f"best K of {policy}, {number} requests"
            found.append(Finding(what, best, wanted, f"{wanted}", best == wanted))
    for kind in dict.fromkeys(row["kind"] for row in rows):
        found += errors(rows, kind)
    return found


def errors(rows: Sequence[dict[str, Any]], kind: str) -> list[Finding]:
    """Fig. 7: with predicted lengths, as the paper has it, with true ones, and with those that are learned."""
    found = []
    for what, policy, column in (
        ("lengths predicted", "laps", "error_with_prediction"),
        ("lengths true", "laps", "estimate_error"),
        ("lengths learned", "laps_learned", "error_with_prediction"),
    ):
        error = error_of(rows, kind, policy, column)
        if error is not None:
            name = f"error of estimated times, {kind}, {what}"
            found.append(Finding(name, error, PAPER_ERROR.get(kind), "at most 0.07", error <= MOST_ERROR))
    return found


def ratios(what: str, rows: Sequence[dict[str, Any]], *, is_one: bool) -> list[Finding]:
    """LAPS beside the others in one setting. is_one: at one place, where the paper's figures are wanted."""
    seconds = {policy: mean_seconds(rows, policy=policy) for policy in POLICIES}
    found = []
    for laps, lp_sjf in (("laps", "lp_sjf"), ("laps_paper", "lp_sjf"), ("laps_true", "sjf")):
        of_las, of_lp_sjf = seconds[laps] / seconds["las"], seconds[lp_sjf] / seconds[laps]
        most, least = (MOST_OF_LAS, LEAST_OF_LP_SJF) if is_one else (1.0, 1.0)
        paper = (MOST_OF_LAS, LEAST_OF_LP_SJF) if is_one else (None, None)
        found += [
            Finding(f"{what}: {laps} / las", of_las, paper[0], f"at most {most:g}", of_las <= most),
            Finding(f"{what}: {lp_sjf} / {laps}", of_lp_sjf, paper[1], f"at least {least:g}", of_lp_sjf >= least),
        ]
    learned = seconds["laps_learned"] / seconds["fcfs"]
    return [
        *found,
        Finding(f"{what}: laps_learned / fcfs", learned, None, "below 1", learned < 1.0),
        Finding(f"{what}: laps / fcfs", seconds["laps"] / seconds["fcfs"]),
        Finding(f"{what}: optimal / fcfs", seconds["optimal"] / seconds["fcfs"]),
    ]
