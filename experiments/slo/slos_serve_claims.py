"""Claims of SLOs-Serve's paper about its capacities, beside ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, TypeAlias

from experiments.harness.experiment import Finding
from experiments.slo.admission_policies import (
    BASELINES,
    DISTSERVE,
    NO_DRAFTS,
    NO_PROMISES,
    OURS,
    SARATHI,
    VLLM,
    VLLM_SPEC,
)

Row: TypeAlias = dict[str, Any]
Capacities: TypeAlias = dict[str, dict[str, float]]  # requests per second, by scenario and policy

ALLOWED, FEW = 0.1, 0.02
"""Shares of requests that may miss their service levels: the paper's, and its stricter one."""

FEW_SCENARIO = "ChatBot"
"""The scenario for which the paper tells the stricter one."""

LEAST_CAPACITY = 0.01
"""Requests per second that are assumed where not a single one kept its service level, so that there is a ratio."""

LEAST_RATIO, MOST_SCHEDULING_MS = 1.7, 2.0
COLOCATED = (VLLM, VLLM_SPEC, SARATHI)
"""The baselines of one GPU, by the best of which the paper tells its scenarios' ratios."""

PAPER = {VLLM: 1.76, SARATHI: 1.94, DISTSERVE: 2.6}
PAPER_FEW = {VLLM: 1.91, SARATHI: 2.19, DISTSERVE: 2.4}
PAPER_WITHOUT = {NO_DRAFTS: 1.66, NO_PROMISES: 1.34}
PAPER_BEST = {"ChatBot": 1.41, "Coder": 2.1, "Summarizer": 1.14, "ToolLLM": 1.90, "Reasoning": 2.4}
"""Capacity over a baseline's; in ChatBot with 2 % missed; over that without one of its parts; and by scenario, over the
best of `COLOCATED` (ChatBot up to 1.70, Summarizer up to 1.17)."""


def facts(rows: Sequence[Row], loads: Sequence[Row] = ()) -> dict[str, Any]:
    """The capacities and their ratios, near and by distance, and what became of promises.

    rows: one for each scenario, policy, distance and seed. loads: all that were tried.
    """
    near = [row for row in rows if not row["latency_ms"]]
    capacity = capacities(near, "capacity")
    few = capacities([row for row in near if row["scenario"] == FEW_SCENARIO], "capacity_few")
    over = {name: ratios(capacity, [name]) for name in BASELINES}
    own = [row for row in near if row["policy"] == OURS and row["promised"] is not None]
    tried = [load for load in loads if load["policy"] == OURS and not load["latency_ms"]]
    far = ("scenario", "policy", "latency_ms", "capacity", "promised", "promised_attained")
    return {
        "capacity": capacity,
        "capacity_few": few,
        "over_vllm": over[VLLM],
        "geometric_mean": geometric_mean(over[VLLM].values()),
        "over": over,
        "over_best": ratios(capacity, COLOCATED),
        "over_few": {name: ratios(few, [name]) for name in PAPER_FEW},
        "without": {name: ratios(capacity, [name]) for name in PAPER_WITHOUT},
        "promised": {row["scenario"]: row["promised"] for row in own},
        "num_promised": sum(load["num_promised"] for load in tried),
        "broken_by_tens": sum(load["promised_slow"] for load in tried),
        "broken_late": sum(load["promised_late"] for load in tried),
        "distances": [{name: row[name] for name in far} for row in rows if row["latency_ms"]],
    }


def capacities(rows: Sequence[Row], column: str) -> Capacities:
    """The mean over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        found.setdefault(row["scenario"], {}).setdefault(row["policy"], []).append(row[column])
    return {name: {policy: fmean(values) for policy, values in own.items()} for name, own in found.items()}


def ratios(found: Capacities, theirs: Collection[str]) -> dict[str, float]:
    """Our capacity over the best of theirs, by scenario; scenarios that none of theirs served are left out."""
    return {
        scenario: ratio(own[OURS], max(own[policy] for policy in theirs if policy in own))
        for scenario, own in found.items()
        if any(policy in own for policy in theirs)
    }


def ratio(ours: float, theirs: float) -> float:
    return max(ours, LEAST_CAPACITY) / max(theirs, LEAST_CAPACITY)


def geometric_mean(values: Iterable[float]) -> float:
    return exp(fmean(log(value) for value in values))


def findings(told: dict[str, Any]) -> list[Finding]:
    milliseconds, broken = told["scheduler_ms"]["p99"], told["broken_by_tens"]
    wanted, mean = f"at least {LEAST_RATIO:g}", told["geometric_mean"]
    found = [
        Finding("capacity over vLLM, geometric mean", mean, PAPER[VLLM], wanted, mean >= LEAST_RATIO),
        *(
            Finding(f"capacity over {name}, geometric mean", geometric_mean(own.values()), PAPER.get(name))
            for name, own in told["over"].items()
            if name != VLLM and own
        ),
        *(
            Finding(f"{scenario}: capacity over the best of {', '.join(COLOCATED)}", best, PAPER_BEST.get(scenario))
            for scenario, best in told["over_best"].items()
        ),
        *(
            Finding(f"{FEW_SCENARIO}: capacity over {name} with 2 % missed", own[FEW_SCENARIO], PAPER_FEW[name])
            for name, own in told["over_few"].items()
            if FEW_SCENARIO in own
        ),
        *(
            Finding(f"capacity over `{name}`, geometric mean", geometric_mean(own.values()), PAPER_WITHOUT[name])
            for name, own in told["without"].items()
            if own
        ),
    ]
    found += [Finding(f"{scenario}: promised, of all at capacity", part) for scenario, part in told["promised"].items()]
    found.append(Finding(f"promises broken by tens, of {told['num_promised']}", broken, None, "0", not broken))
    found.append(Finding("promises broken by a late first token, of the same", told["broken_late"]))
    wanted = f"below {MOST_SCHEDULING_MS:g} ms"
    reached = milliseconds < MOST_SCHEDULING_MS
    found.append(Finding("scheduling of 10 new beside 200, p99 in ms", milliseconds, None, wanted, reached))
    return found
