"""Claims of AdaServe's paper about its figures, beside ours.

A ratio compares means over a figure's worlds; the best baseline is chosen anew in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from experiments.harness.experiment import Finding
from experiments.slo.service_policies import BARRIER, BASELINES, OURS

Row: TypeAlias = dict[str, Any]

BURSTY = {
    "llama": {
        OURS: 0.836,
        "chunked prefill": 0.656,
        "prefill first": 0.526,
        "fixed 4": 0.516,
        "fixed 6": 0.478,
        "fixed 8": 0.384,
    },
    "qwen": {
        OURS: 0.830,
        "chunked prefill": 0.738,
        "prefill first": 0.643,
        "fixed 4": 0.392,
        "fixed 6": 0.241,
        "fixed 8": 0.125,
    },
}
"""Attainment in the paper's figure 14."""

PAPER = {
    "llama": {
        "violations": 4.3,
        "goodput": 1.9,
        "urgent violations": 4.3,
        "urgent goodput": 1.30,
        "scale violations": 4.61,
        "selection": 0.0041,
    },
    "qwen": {
        "violations": 3.2,
        "goodput": 1.7,
        "urgent violations": 3.7,
        "urgent goodput": 1.64,
        "scale violations": 3.05,
        "selection": 0.0031,
    },
}
"""The paper's figures 8 to 11 and 15: mostly the highest over its points, where ours are means."""

VARIED = ("requests_per_s", "latency_ms", "urgent_share", "slo_scale", "harder")
"""The columns that set the worlds of a figure apart."""

RATIOS = ("violations_ratio", "goodput_ratio")
LEAST_VIOLATIONS, LEAST_GOODPUT, MOST_SELECTING = 3.0, 1.5, 0.003


def ratios(rows: Sequence[Row], model: str, figure: str, ours: str) -> dict[str, float]:
    """Violations of the best baseline over ours, and our goodput over the best: of means over the figure's worlds.

    The best baseline is chosen anew in each world, which is harder than any one of them.
    """
    worlds: dict[tuple[Any, ...], dict[str, Row]] = {}
    for one in rows:
        if (one["figure"], one["model"]) == (figure, model):
            worlds.setdefault(tuple(one[name] for name in VARIED), {})[one["policy"]] = one
    own = [world[ours] for world in worlds.values()]
    theirs = [[one for policy, one in world.items() if policy in BASELINES] for world in worlds.values()]
    violations = fmean(min(one["violations"] for one in world) for world in theirs)
    goodput = fmean(max(one["goodput_tokens_s"] for one in world) for world in theirs)
    one_text = 1.0 / sum(one["requests"] for one in own)  # where nothing was late, one of all texts is assumed
    return {
        "violations_ratio": max(violations, one_text) / max(fmean(one["violations"] for one in own), one_text),
        "goodput_ratio": fmean(one["goodput_tokens_s"] for one in own) / goodput,
    }


def findings(models: Iterable[str], rows: Sequence[Row]) -> list[Finding]:
    found = []
    for name in models:
        claimed = PAPER[name]
        found += _ratios(rows, name, "rates", OURS, claimed["violations"], claimed["goodput"], wanted=True)
        found += _ratios(rows, name, "rates", BARRIER, claimed["violations"], claimed["goodput"])
        found += _ratios(rows, name, "edge", OURS)
        found += _ratios(rows, name, "urgent", OURS, claimed["urgent violations"], claimed["urgent goodput"])
        found += _ratios(rows, name, "scale", OURS, claimed["scale violations"], 1.38)
        found += _ratios(rows, name, "harder", OURS)
        found += _bursty(rows, name)
        found += _selection(rows, name, claimed["selection"])
    return found


def _ratios(
    rows: Sequence[Row],
    model: str,
    figure: str,
    ours: str,
    violations: float | None = None,
    goodput: float | None = None,
    *,
    wanted: bool = False,
) -> list[Finding]:
    if not any(one["figure"] == figure for one in rows):
        return []
    found = ratios(rows, model, figure, ours)
    what = f"{model}, {figure}, {ours}: "
    if not wanted:
        return [
            Finding(f"{what}violations, best baseline over it", found["violations_ratio"], violations),
            Finding(f"{what}goodput over the best baseline", found["goodput_ratio"], goodput),
        ]
    return [
        _wanted(f"{what}violations, best baseline over it", found["violations_ratio"], violations, LEAST_VIOLATIONS),
        _wanted(f"{what}goodput over the best baseline", found["goodput_ratio"], goodput, LEAST_GOODPUT),
    ]


def _wanted(what: str, ours: float, paper: float | None, least: float) -> Finding:
    return Finding(what, ours, paper, f"at least {least:g}", ours >= least)


def _bursty(rows: Sequence[Row], model: str) -> list[Finding]:
    """Figure 14."""
    found = {one["policy"]: one["attainment"] for one in rows if (one["figure"], one["model"]) == ("bursty", model)}
    return [
        Finding(f"{model}, bursty, {policy}: attainment", found[policy], paper)
        for policy, paper in BURSTY[model].items()
    ]


def _selection(rows: Sequence[Row], model: str, paper: float) -> list[Finding]:
    """Figure 15."""
    here = [one for one in rows if (one["figure"], one["model"], one["policy"]) == ("rates", model, OURS)]
    share = fmean(one["selection_share"] for one in here)
    wanted = f"below {MOST_SELECTING:.1%}"
    return [Finding(f"{model}: share of the time that selection takes", share, paper, wanted, share < MOST_SELECTING)]
