"""Claims of SLOs-Serve's paper about its capacities, beside ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, TypeAlias

from experiments.harness.experiment import Finding
from experiments.slo.admission_policies import BASELINES, FAMILIES, NO_DRAFTS, NO_PROMISES, OURS, family

Row: TypeAlias = dict[str, Any]
Capacities: TypeAlias = dict[str, dict[str, float]]  # requests per second, by scenario and policy

ALLOWED, FEW = 0.1, 0.02
"""Shares of requests that may miss their service levels: the paper's, and its stricter one."""

LEAST_CAPACITY = 0.01
"""Requests per second that are assumed where not a single one kept its service level, so that there is a ratio."""

LEAST_RATIO, LEAST_KEPT, MOST_SCHEDULING_MS = 2.2, 0.95, 2.0
PAPER = {"prefill first": 1.76, "chunked prefill": 1.94}
PAPER_FEW = {"prefill first": 1.91, "chunked prefill": 2.19}
PAPER_WITHOUT = {NO_DRAFTS: 1.66, NO_PROMISES: 1.34}
"""Capacity over that of vLLM and Sarathi; in ChatBot with 2 % missed; and over that without one of its parts."""


def facts(rows: Sequence[Row]) -> dict[str, Any]:
    """The capacities and their ratios, near and by distance, and what became of promises."""
    near = [row for row in rows if not row["latency_ms"]]
    capacity, few = capacities(near, "capacity"), capacities(near, "capacity_few")
    own = [row for row in near if row["policy"] == OURS]
    far = ("scenario", "policy", "latency_ms", "capacity", "capacity_few", "promised", "promised_attained")
    return {
        "capacity": capacity,
        "capacity_few": few,
        "ratios": over(capacity, BASELINES),
        "geometric_mean": geometric_mean(over(capacity, BASELINES).values()),
        "over": {name: over(capacity, members(name)) for name in FAMILIES},
        "over_few": {name: over(few, members(name)) for name in FAMILIES},
        "without": {name: over(capacity, [name]) for name in PAPER_WITHOUT},
        "promised": {row["scenario"]: row["promised"] for row in own},
        "promised_attained": {row["scenario"]: row["promised_attained"] for row in own},
        "distances": [{name: row[name] for name in far} for row in rows if row["latency_ms"]],
    }


def capacities(rows: Sequence[Row], column: str) -> Capacities:
    found: Capacities = {}
    for row in rows:
        found.setdefault(row["scenario"], {})[row["policy"]] = row[column]
    return found


def members(name: str) -> list[str]:
    """A baseline with each of its fixed lengths."""
    return [policy for policy in BASELINES if family(policy) == name]


def over(found: Capacities, theirs: Collection[str]) -> dict[str, float]:
    """Our capacity over the best of theirs, by scenario."""
    return {
        scenario: max(own[OURS], LEAST_CAPACITY) / max(LEAST_CAPACITY, *(own[policy] for policy in theirs))
        for scenario, own in found.items()
    }


def geometric_mean(values: Iterable[float]) -> float:
    return exp(fmean(log(value) for value in values))


def findings(told: dict[str, Any]) -> list[Finding]:
    mean, milliseconds = told["geometric_mean"], told["scheduler_ms"]["p99"]
    found = [
        Finding(f"{scenario}: capacity over the better baseline", ratio) for scenario, ratio in told["ratios"].items()
    ]
    found.append(_wanted("capacity over the better baseline, geometric mean", mean, LEAST_RATIO))
    found += [
        Finding(f"capacity over {name}, geometric mean", geometric_mean(told["over"][name].values()), PAPER[name])
        for name in FAMILIES
    ]
    found += [
        Finding(f"ChatBot: capacity over {name} with 2 % missed", told["over_few"][name]["ChatBot"], PAPER_FEW[name])
        for name in FAMILIES
        if "ChatBot" in told["over_few"][name]
    ]
    found += [
        Finding(f"capacity over `{name}`, geometric mean", geometric_mean(ratios.values()), PAPER_WITHOUT[name])
        for name, ratios in told["without"].items()
    ]
    for scenario, kept in told["promised_attained"].items():
        found.append(Finding(f"{scenario}: promised, of all at capacity", told["promised"][scenario]))
        if kept is not None:
            found.append(_wanted(f"{scenario}: promised and kept, of those promised", kept, LEAST_KEPT))
    wanted = f"below {MOST_SCHEDULING_MS:g} ms"
    reached = milliseconds < MOST_SCHEDULING_MS
    found.append(Finding("scheduling of 10 new beside 200, p99 in ms", milliseconds, None, wanted, reached))
    return found


def _wanted(what: str, ours: float, least: float) -> Finding:
    return Finding(what, ours, None, f"at least {least:g}", ours >= least)
