"""Claims of AdaServe's paper about its figures, beside ours, by the paper's measure.

A ratio is that to the best baseline of the same world: at the highest rate, or the best of a figure ("up to").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from experiments.harness.experiment import Finding

Row: TypeAlias = dict[str, Any]
World: TypeAlias = dict[str, dict[str, float]]
"""Means over the seeds, by policy and measure."""

OURS, ADAPTIVE = "gradient", "adaptive"
PUBLISHED, NO_PHASE, TUNED = "adaserve", "adaserve, no SLO phase", "adaserve, tuned"
BASELINES = ("prefill first", "chunked prefill", "fixed 4", "fixed 6", "fixed 8")
SLED = ("fixed 4", "fixed 6", "fixed 8")
"""Drafts of one length from a device of each text's own, for which the text waits, as SLED's do; the best counts."""

BESIDE = "fixed, beside rounds"
"""Four drafted tokens for everybody by draft nodes like ours, for which nobody waits."""

BURSTY = {
    "llama": {
        PUBLISHED: 0.836,
        "chunked prefill": 0.656,
        "prefill first": 0.526,
        "fixed 4": 0.516,
        "fixed 6": 0.478,
        "fixed 8": 0.384,
    },
    "qwen": {
        PUBLISHED: 0.830,
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
        "rates": (2.1, 4.3, 1.9),
        "urgent": (None, 4.3, 1.30),
        "scale": (None, 4.61, 1.38),
        "selection": 0.0041,
    },
    "qwen": {
        "rates": (1.6, 3.2, 1.7),
        "urgent": (None, 3.7, 1.64),
        "scale": (None, 3.05, 1.38),
        "selection": 0.0031,
    },
}
"""The paper's figures 8 to 11 and 15: attainment over the best baseline's, its violations over ours, and goodput."""

WISP = (1.94, 3.7)
"""WISP's goodput over a centralised service's, and over SLED's, where its users and devices are."""

VARIED = ("requests_per_s", "latency_ms", "urgent_share", "slo_scale", "harder")
"""The columns that set the worlds of a figure apart."""

MEASURES = ("attainment", "violations", "goodput_tokens_s", "requests", "selection_share")
RATIOS = ("attainment_ratio", "violations_ratio", "goodput_ratio")
MOST_SELECTING = 0.003
OVER_PUBLISHED = 1.2


def worlds(rows: Sequence[Row], model: str, figure: str) -> list[World]:
    """The worlds of a figure, in the order of its rows."""
    found: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for one in rows:
        if (one["figure"], one["model"]) == (figure, model):
            found.setdefault(tuple(one[name] for name in VARIED), {}).setdefault(one["policy"], []).append(one)
    return [
        {policy: {name: fmean(one[name] for one in own) for name in MEASURES} for policy, own in world.items()}
        for world in found.values()
    ]


def ratios(world: World, ours: str) -> dict[str, float]:
    """Ours beside the best baseline of this world."""
    own, theirs = world[ours], [world[name] for name in BASELINES if name in world]
    one_text = 1.0 / own["requests"]  # where nothing was late, one of all texts is assumed
    violations = min(one["violations"] for one in theirs)
    return {
        "attainment_ratio": own["attainment"] / max(one["attainment"] for one in theirs),
        "violations_ratio": max(violations, one_text) / max(own["violations"], one_text),
        "goodput_ratio": own["goodput_tokens_s"] / max(one["goodput_tokens_s"] for one in theirs),
    }


def findings(models: Iterable[str], rows: Sequence[Row]) -> list[Finding]:
    found = []
    for name in models:
        claimed: dict[str, Any] = PAPER[name]
        for figure in dict.fromkeys(one["figure"] for one in rows if one["model"] == name):
            for ours in (OURS, PUBLISHED) if figure not in ("edge", "beyond") else ():
                found += _ratios(name, figure, worlds(rows, name, figure), ours, claimed.get(figure))
        for figure in ("rates", "beyond"):
            found += _equal(rows, name, figure)
        found += _bursty(rows, name)
        found += _edge(rows, name)
        found += _selection(rows, name, claimed["selection"])
    return found


def _ratios(model: str, figure: str, of: Sequence[World], ours: str, claimed: Any) -> list[Finding]:
    """At the highest rate, where rates vary, and else the best of the figure's worlds, as the paper tells them."""
    by_world = [ratios(world, ours) for world in of]
    found = []
    for ratio, paper in zip(RATIOS, claimed or (None, None, None), strict=True):
        value = by_world[-1][ratio] if figure == "rates" else max(one[ratio] for one in by_world)
        what = f"{model}, {figure}, {ours}: {ratio.replace('_', ' ')}"
        found.append(Finding(what, value) if paper is None else Finding.at_least(what, value, paper, paper))
    return found


def _edge(rows: Sequence[Row], model: str) -> list[Finding]:
    """Beside WISP: goodput over the best of the GPU alone, and over drafts from elsewhere, waited for or not."""
    edge, rates = worlds(rows, model, "edge"), worlds(rows, model, "rates")
    if not edge:
        return []
    alone = max(rates[-1][name]["goodput_tokens_s"] for name in BASELINES)
    found = []
    for number, world in enumerate(edge, 1):
        own, waited = world[OURS]["goodput_tokens_s"], max(world[name]["goodput_tokens_s"] for name in SLED)
        what = f"{model}, edge {number}: goodput over "
        found += [Finding(f"{what}the GPU alone", own / alone, WISP[0]), Finding(f"{what}SLED", own / waited, WISP[1])]
        if BESIDE in world:  # results of earlier runs lack it
            found.append(Finding(f"{what}`{BESIDE}`", own / world[BESIDE]["goodput_tokens_s"]))
    return found


def _equal(rows: Sequence[Row], model: str, figure: str) -> list[Finding]:
    """Goodput at the figure's highest rate beside others: `fixed, beside rounds` has as many devices as ours.

    More devices would not change AdaServe's figures: its rounds wait for the draft model's steps, whose time is fixed.
    """
    world = worlds(rows, model, figure)[-1]
    found = []
    for name in (PUBLISHED, TUNED, ADAPTIVE, BESIDE):
        ratio = world[OURS]["goodput_tokens_s"] / world[name]["goodput_tokens_s"]
        what = f"{model}, {figure}: goodput over `{name}`"
        is_adaserve = name in (PUBLISHED, TUNED)
        found.append(Finding.at_least(what, ratio, OVER_PUBLISHED) if is_adaserve else Finding(what, ratio))
    phase = world[PUBLISHED]["attainment"] - world[NO_PHASE]["attainment"]
    return [*found, Finding(f"{model}, {figure}, {PUBLISHED}: attainment by the SLO phase", phase)]


def _bursty(rows: Sequence[Row], model: str) -> list[Finding]:
    """Figure 14."""
    [world] = worlds(rows, model, "bursty")
    claimed = BURSTY[model] | dict.fromkeys((TUNED, OURS), BURSTY[model][PUBLISHED])
    return [
        Finding(f"{model}, bursty, {policy}: attainment", world[policy]["attainment"], paper)
        for policy, paper in claimed.items()
    ]


def _selection(rows: Sequence[Row], model: str, paper: float) -> list[Finding]:
    """Figure 15."""
    share = fmean(world[OURS]["selection_share"] for world in worlds(rows, model, "rates"))
    wanted = f"below {MOST_SELECTING:.1%}"
    return [Finding(f"{model}: share of the time that selection takes", share, paper, wanted, share < MOST_SELECTING)]
