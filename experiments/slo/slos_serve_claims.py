"""Claims of SLOs-Serve's paper about its capacities, beside ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

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

ALLOWED, FEW = 0.1, 0.02
"""Shares of requests that may miss their service levels: the paper's, and its stricter one."""

FEW_SCENARIO = "ChatBot"
"""The scenario for which the paper tells the stricter one; its first window has it here."""

LEAST_CAPACITY = 0.01
"""Requests per second that are assumed where not a single one kept its service level, so that there is a ratio."""

LEAST_RATIO, MOST_SCHEDULING_MS = 1.7, 2.0
COLOCATED = (VLLM, VLLM_SPEC, SARATHI)
"""The baselines of one GPU, by the best of which the paper tells its scenarios' ratios."""

PAPER_WITHOUT = {NO_DRAFTS: 1.66, NO_PROMISES: 1.34}
PAPER = {VLLM: 1.76, SARATHI: 1.94, DISTSERVE: 2.6} | PAPER_WITHOUT
PAPER_BEST_MEAN = 2.2
PAPER_FEW = {VLLM: 1.91, SARATHI: 2.19, DISTSERVE: 2.4}
PAPER_BEST = {"ChatBot": 1.41, "Coder": 2.1, "Summarizer": 1.14, "ToolLLM": 1.90, "Reasoning": 2.4}
"""Capacity over that without one of its parts; over a baseline's; over the best of `COLOCATED`; over a baseline's in
ChatBot with 2 % missed; and by scenario, over the best of `COLOCATED` (ChatBot up to 1.70, Summarizer up to 1.17)."""


class Ratio(NamedTuple):
    """A ratio of capacities: the geometric mean over the windows, and its range."""

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Ratio:
        least, most = min(values), max(values)
        return cls(min(max(geometric_mean(values), least), most), least, most)  # rounding may leave the range

    def found(self, what: str, paper: float | None = None, least: float | None = None) -> Finding:
        """Returns what the table says of it. least: the ratio that is wanted."""
        what += f" ({self.least:.2f} to {self.most:.2f})" if self.least < self.most else ""
        return Finding(what, self.mean, paper) if least is None else Finding.at_least(what, self.mean, least, paper)


def facts(rows: Sequence[Row], loads: Sequence[Row] = ()) -> dict[str, Any]:
    """The capacities and their ratios, and what became of promises.

    rows: one for each scenario, policy and window. loads: all that were tried.
    """
    few = [row for row in rows if row["scenario"] == FEW_SCENARIO and not row["window"]]
    over = {name: ratios(rows, "capacity", [name]) for name in (*BASELINES, *PAPER_WITHOUT)}
    own = [row for row in rows if row["policy"] == OURS and row["promised"] is not None]
    tried = [load for load in loads if load["policy"] == OURS]
    return {
        "capacity": means(rows, "capacity"),
        "capacity_few": means(few, "capacity_few"),
        "over": {name: ranges(found) for name, found in over.items()},
        "geometric_mean": {name: overall(found) for name, found in over.items() if found},
        "over_best": ranges(ratios(rows, "capacity", COLOCATED)),
        "over_best_mean": overall(ratios(rows, "capacity", COLOCATED)),
        "over_few": {name: ranges(ratios(few, "capacity_few", [name])) for name in BASELINES},
        "promised": {scenario: found[OURS] for scenario, found in means(own, "promised").items()},
        "num_promised": sum(load["num_promised"] for load in tried),
        "broken_by_tens": sum(load["promised_slow"] for load in tried),
        "broken_late": sum(load["promised_late"] for load in tried),
    }


def means(rows: Sequence[Row], column: str) -> dict[str, dict[str, float]]:
    """The mean over windows, by scenario and policy."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        found.setdefault(row["scenario"], {}).setdefault(row["policy"], []).append(row[column])
    return {name: {policy: fmean(values) for policy, values in own.items()} for name, own in found.items()}


def ratios(rows: Sequence[Row], column: str, theirs: Collection[str], ours: str = OURS) -> dict[str, list[float]]:
    """Our capacity over the best of theirs in each window, by scenario; without scenarios that either did not serve."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        found.setdefault(row["scenario"], {}).setdefault(row["window"], {})[row["policy"]] = row[column]
    over = {
        scenario: [
            ratio(own[ours], max(own[name] for name in theirs if name in own))
            for own in windows.values()
            if ours in own and own.keys() & set(theirs)
        ]
        for scenario, windows in found.items()
    }
    return {scenario: values for scenario, values in over.items() if values}


def ratio(ours: float, theirs: float) -> float:
    return max(ours, LEAST_CAPACITY) / max(theirs, LEAST_CAPACITY)


def ranges(found: dict[str, list[float]]) -> dict[str, Ratio]:
    return {scenario: Ratio.of(values) for scenario, values in found.items()}


def overall(found: dict[str, list[float]]) -> Ratio:
    """The geometric mean of all scenarios; its range is that over windows that all scenarios have."""
    by_window = Ratio.of([geometric_mean(values) for values in zip(*found.values(), strict=False)])
    return by_window._replace(mean=geometric_mean(geometric_mean(values) for values in found.values()))


def geometric_mean(values: Iterable[float]) -> float:
    return exp(fmean(log(value) for value in values))


def findings(told: dict[str, Any]) -> list[Finding]:
    milliseconds, broken = told["scheduler_ms"]["p99"], told["broken_by_tens"]
    best = f"capacity over the best of {', '.join(COLOCATED)}"
    found = [
        one.found(f"capacity over {name}, geometric mean", PAPER.get(name), LEAST_RATIO if name == VLLM else None)
        for name, one in told["geometric_mean"].items()
    ]
    found.append(told["over_best_mean"].found(f"{best}, geometric mean", PAPER_BEST_MEAN))
    found += [one.found(f"{scenario}: {best}", PAPER_BEST.get(scenario)) for scenario, one in told["over_best"].items()]
    found += [
        own[FEW_SCENARIO].found(f"{FEW_SCENARIO}: capacity over {name} with 2 % missed", PAPER_FEW.get(name))
        for name, own in told["over_few"].items()
        if FEW_SCENARIO in own
    ]
    found += [Finding(f"{scenario}: promised, of all at capacity", part) for scenario, part in told["promised"].items()]
    found.append(Finding(f"promises broken by tens, of {told['num_promised']}", broken, None, "0", not broken))
    found.append(Finding("promises broken by a late first token, of the same", told["broken_late"]))
    wanted = f"below {MOST_SCHEDULING_MS:g} ms"
    reached = milliseconds < MOST_SCHEDULING_MS
    found.append(Finding("scheduling of 10 new beside 200, p99 in ms", milliseconds, None, wanted, reached))
    return found
