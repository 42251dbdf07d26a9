"""Claims of LAPS-SD's paper beside the experiment's rows; and its Fig. 1, the only example that runs here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.harness.experiment import Finding
from experiments.order.laps_sd_runs import POLICIES, chosen, mean_seconds
from experiments.simulation.queueing.rivals import create
from verify_node.scheduler.laps import NUM_ROUNDS
from verify_node.scheduler.order import Job

FIG1_S = {"R1": 0.2, "R2": 0.5, "R3": 0.15}
FIG1_TOKENS = {"R1": 10, "R2": 5, "R3": 12}
"""R3's tokens are not stated; any number above 10 gives the order that the paper shows."""

BEST_QUEUES = {10: 6, 30: 4}
"""Fig. 6(a): the best K by the number of requests."""

PAPER_ERROR = {"chat": 0.0763, "code": 0.1121, "reasoning": 0.0851}
MOST_OF_FCFS, MOST_OF_LAS, MOST_ERROR = 0.61, 0.69, 0.07


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


def error_of(rows: Sequence[dict[str, Any]], kind: str) -> float | None:
    """Mean error of the estimates of LAPS at one place, given the texts' lengths; None where there were none."""
    found = [row["estimate_error"] for row in chosen(rows, policy="laps", places=1, kind=kind)]
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
        if (error := error_of(rows, kind)) is not None:
            what = f"error of estimated times, {kind}"
            found.append(Finding(what, error, PAPER_ERROR.get(kind), "at most 0.07", error <= MOST_ERROR))
    return found


def ratios(what: str, rows: Sequence[dict[str, Any]], *, is_one: bool) -> list[Finding]:
    """LAPS beside the others in one setting. is_one: at one place, where the paper's figures are wanted."""
    seconds = {policy: mean_seconds(rows, policy=policy) for policy in POLICIES}
    fcfs, las = seconds["laps"] / seconds["fcfs"], seconds["laps"] / seconds["las"]
    of_fcfs, of_las = (MOST_OF_FCFS, MOST_OF_LAS) if is_one else (1.0, 1.0)
    return [
        Finding(f"{what}: laps / fcfs", fcfs, 0.61 if is_one else None, f"at most {of_fcfs:g}", fcfs <= of_fcfs),
        Finding(f"{what}: laps / las", las, 0.69 if is_one else None, f"at most {of_las:g}", las <= of_las),
        Finding(f"{what}: lp_sjf / laps", seconds["lp_sjf"] / seconds["laps"], 1.47 if is_one else None),
        Finding(f"{what}: laps_paper / fcfs", seconds["laps_paper"] / seconds["fcfs"]),
        Finding(f"{what}: laps_learned / fcfs", seconds["laps_learned"] / seconds["fcfs"]),
        Finding(f"{what}: optimal / fcfs", seconds["optimal"] / seconds["fcfs"]),
    ]
