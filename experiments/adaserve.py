"""AdaServe's figures 8 to 12, 14 and 15: which texts keep their service level, by policy, as the load grows.

Requests come as they did to a real service, rescaled to the paper's rates: code completions that must be nearly as
quick as a machine without load, chats, and summaries that may take their time. Rounds take what the paper's authors
measured on four and two A100. Every policy meets the same requests, with texts that are as hard to draft. *Colocated*
draft nodes are at distance 0, *edge* ones some way off. What baselines draft is waited for, as where the draft model
shares the target's devices; the others' draft nodes draft beside the rounds, except for those that say `barrier`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import styles
from experiments.harness import Finding, Outcome, Results, new_figure, run
from experiments.progress import parts
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.mix import Kind, bells, mixed
from experiments.simulation.open_loop.prefill_first import PrefillFirst
from experiments.simulation.open_loop.service import Service, serve
from experiments.simulation.open_loop.tabled import Tabled
from experiments.simulation.open_loop.traffic import rescaled
from experiments.simulation.settings import Settings
from goodspeed.fair.latency import Linear

OURS = "slo"
PLAIN: dict[str, Any] = {"policy": "fixed", "selection": "none", "max_draft": 0}
FIXED: dict[str, Any] = {"policy": "fixed", "selection": "none", "rounds": "barrier", "draft_ahead": False}
TIMED: dict[str, Any] = {"weighs_time": True, "selection": "odds"}
WAITED_FOR: dict[str, Any] = {"rounds": "barrier", "draft_ahead": False}
BASELINES: dict[str, dict[str, Any]] = {
    "prefill first": PLAIN | {"core_kind": PrefillFirst},
    "chunked prefill": PLAIN,
    **{f"fixed {length}": FIXED | {"max_draft": length} for length in (4, 6, 8)},
    "fixed 4, beside": FIXED | {"max_draft": 4, "rounds": "continuous", "draft_ahead": True},
}
"""vLLM, Sarathi, vLLM with drafts of a fixed length, and that with what ours has: drafting beside the rounds."""

POLICIES = BASELINES | {
    "gradient, barrier": TIMED | WAITED_FOR | {"policy": "gradient"},
    "slo, barrier": TIMED | WAITED_FOR | {"policy": "slo"},
    "gradient": TIMED | {"policy": "gradient"},
    OURS: TIMED | {"policy": "slo"},
}
"""What each is, as settings of a world. Another row is another policy of every figure."""

FEW = ("chunked prefill", "fixed 4", "fixed 4, beside", "gradient", OURS)
"""Policies of the figures with many points."""

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
"""What the paper claims of figures 8 to 11 and 15: mostly the highest over its points, where ours are means."""

NOTES = [
    "A ratio compares means over a figure's worlds; the best baseline is chosen anew in each of them.",
    "Where no text was late, one of all is assumed.",
    "The paper's ratios are its best ones (`up to`), at one of its rates.",
]
LEAST_VIOLATIONS, LEAST_GOODPUT, MOST_SELECTING = 3.0, 1.5, 0.003


@dataclass(frozen=True)
class Model:
    """A target on its devices, and its draft model."""

    round_tokens: list[float]
    round_ms: list[float]
    step_ms: float  # of the draft model, for a token of each text
    baseline_ms: float  # a token without load
    requests_per_s: list[float]

    @property
    def cost(self) -> Tabled:
        return Tabled(tuple(self.round_tokens), tuple(ms / 1000 for ms in self.round_ms))


@dataclass(frozen=True)
class Config:
    """One section of `configs/adaserve.toml`."""

    seed: int
    duration_s: float
    trace: str
    begin_s: float
    clients: int
    evenness: float  # of the odds of drafted tokens (`uneven.py`)
    budget: int
    max_round_tokens: int
    edge_s: float  # one way
    edge_requests_per_s: list[float]
    requests_per_s: float  # where something else varies
    urgent_shares: list[float]
    slo_scale: float  # the urgent kind's TPOT over the baseline
    slo_scales: list[float]  # tried instead
    peaks: list[float]  # of the bursty run: when most of each kind come, as a share of the run
    bell_s: float  # and the standard deviation of that
    kinds: list[Kind]  # the first is the urgent one
    models: dict[str, Model]


@dataclass(frozen=True)
class Point:
    """One world but for its policy."""

    figure: str
    model: str
    requests_per_s: float
    latency_s: float = 0.0
    urgent_share: float | None = None  # of the first category; None: as configured
    slo_scale: float | None = None
    bursty: bool = False


def experiment(config: Config) -> Outcome:
    cells = [(point, policy) for point, policies in points(config) for policy in policies]
    rows = [row(config, point, policy) for point, policy in parts("worlds", cells)]
    runs = [told(one) for one in rows if one["figure"] == "rates"]
    headline = {name: ratios(rows, name, "rates", OURS) for name in config.models}
    return Outcome(rows=rows, findings=findings(config, rows), facts={"runs": runs, "headline": headline}, notes=NOTES)


def points(config: Config) -> Iterator[tuple[Point, Sequence[str]]]:
    """Every world of every figure, and the policies that meet it."""
    for name, model in config.models.items():
        for rate in model.requests_per_s:
            yield Point("rates", name, rate), tuple(POLICIES)
        for rate in config.edge_requests_per_s:
            yield Point("edge", name, rate, latency_s=config.edge_s), FEW
        for share in config.urgent_shares:
            yield Point("urgent", name, config.requests_per_s, urgent_share=share), FEW
        for scale in config.slo_scales:
            yield Point("scale", name, config.requests_per_s, slo_scale=scale), FEW
        yield Point("bursty", name, config.requests_per_s, bursty=True), (*BURSTY["llama"], "gradient")


def row(config: Config, point: Point, policy: str) -> dict[str, Any]:
    """What a policy makes of a world."""
    model, arrivals = config.models[point.model], requests(config, point)
    settings = Settings(
        num_clients=config.clients,
        budget=config.budget,
        max_round_tokens=config.max_round_tokens,
        round_cost=model.cost,
        known_cost=True,
        draft_cost=(Linear(fixed_s=model.step_ms / 1000),),
        latency_s=(point.latency_s,),
        self_draft=False,
        explore=0.0,
    )
    done = serve(replace(settings, **POLICIES[policy]), arrivals, config.seed)
    key = {"figure": point.figure, "model": point.model, "requests_per_s": point.requests_per_s, "policy": policy}
    varied = {"latency_ms": 1000 * point.latency_s, "urgent_share": point.urgent_share, "slo_scale": point.slo_scale}
    return key | varied | measures(config, done)


def measures(config: Config, done: Service) -> dict[str, float]:
    kept = {
        kind.name: [text.attained for text in done.texts if text.kept.slo.tier == kind.name] for kind in config.kinds
    }
    return {
        "requests": len(done.texts),
        "attainment": done.attainment,
        "violations": 1.0 - done.attainment,
        "goodput_tokens_s": done.goodput,
        "tokens_s": done.tokens_per_s,
        "median_tpot_ms": 1000 * median(done.tpots()),
        "drafted": done.drafted,
        "accepted": done.accepted,
        "round_ms": 1000 * done.busy_s / done.num_rounds,
        "selection_share": done.selecting,
        "selection_ms": 1000 * done.selection_s / done.num_rounds,
        **{f"{name}_attainment": fmean(found) if found else 1.0 for name, found in kept.items()},
    }


def requests(config: Config, point: Point) -> list[Arrival]:
    """The same ones for every policy."""
    random, kinds = Random(config.seed), kinds_of(config, point)
    if point.bursty:
        peaks = [(peak * config.duration_s, kind) for peak, kind in zip(config.peaks, kinds, strict=True)]
        each = round(point.requests_per_s * config.duration_s / len(kinds))
        return bells(peaks, each, config.bell_s, config.duration_s, config.evenness, random)
    times = rescaled(config.trace, point.requests_per_s, config.duration_s, config.begin_s)
    return mixed(times, kinds, config.evenness, random)


def kinds_of(config: Config, point: Point) -> list[Kind]:
    """The kinds with this point's shares; the urgent one with its TPOT on this model."""
    scale, baseline_s = point.slo_scale or config.slo_scale, config.models[point.model].baseline_ms / 1000
    urgent, *others = config.kinds
    share = urgent.share if point.urgent_share is None else point.urgent_share
    rest = (1.0 - share) / sum(kind.share for kind in others)
    urgent = replace(urgent, share=share, tpot_s=scale * baseline_s)
    return [urgent, *(replace(kind, share=rest * kind.share) for kind in others)]


def told(found: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that others compare."""
    names = ("model", "requests_per_s", "policy", "attainment", "violations", "goodput_tokens_s")
    return {name: found[name] for name in names}


def ratios(rows: Sequence[dict[str, Any]], model: str, figure: str, ours: str) -> dict[str, float]:
    """Violations of the best baseline over ours, and our goodput over the best: of means over the figure's worlds.

    The best baseline is chosen anew in each world, which is harder than any one of them.
    """
    worlds: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for one in rows:
        if (one["figure"], one["model"]) == (figure, model):
            worlds.setdefault((one["requests_per_s"], one["urgent_share"], one["slo_scale"]), {})[one["policy"]] = one
    own = [world[ours] for world in worlds.values()]
    theirs = [[one for policy, one in world.items() if policy in BASELINES] for world in worlds.values()]
    violations = fmean(min(one["violations"] for one in world) for world in theirs)
    goodput = fmean(max(one["goodput_tokens_s"] for one in world) for world in theirs)
    one_text = 1.0 / sum(one["requests"] for one in own)  # where nothing was late, one of all texts is assumed
    return {
        "violations_ratio": max(violations, one_text) / max(fmean(one["violations"] for one in own), one_text),
        "goodput_ratio": fmean(one["goodput_tokens_s"] for one in own) / goodput,
    }


def findings(config: Config, rows: Sequence[dict[str, Any]]) -> list[Finding]:
    found = []
    for name in config.models:
        claimed = PAPER[name]
        found += _ratios(rows, name, "rates", OURS, claimed["violations"], claimed["goodput"], wanted=True)
        found += _ratios(rows, name, "rates", "gradient")
        found += _ratios(rows, name, "rates", "slo, barrier", claimed["violations"], claimed["goodput"])
        found += _ratios(rows, name, "edge", OURS)
        found += _ratios(rows, name, "urgent", OURS, claimed["urgent violations"], claimed["urgent goodput"])
        found += _ratios(rows, name, "scale", OURS, claimed["scale violations"], 1.38)
        found += _bursty(rows, name)
        found += _selection(rows, name, claimed["selection"])
    return found


def _ratios(
    rows: Sequence[dict[str, Any]],
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


def _bursty(rows: Sequence[dict[str, Any]], model: str) -> list[Finding]:
    """Figure 14."""
    found = {one["policy"]: one["attainment"] for one in rows if (one["figure"], one["model"]) == ("bursty", model)}
    return [
        Finding(f"{model}, bursty, {policy}: attainment", found[policy], paper)
        for policy, paper in BURSTY[model].items()
    ]


def _selection(rows: Sequence[dict[str, Any]], model: str, paper: float) -> list[Finding]:
    """Figure 15."""
    here = [one for one in rows if (one["figure"], one["model"], one["policy"]) == ("rates", model, OURS)]
    share = fmean(one["selection_share"] for one in here)
    wanted = f"below {MOST_SELECTING:.1%}"
    return [Finding(f"{model}: share of the time that selection takes", share, paper, wanted, share < MOST_SELECTING)]


def draw(config: Config, results: Results) -> Figure:
    """A row of panels for each model."""
    figure = new_figure(17.0, 3.6 * len(config.models))
    panels = (
        ("rates", "requests_per_s", "attainment", "colocated: in time"),
        ("rates", "requests_per_s", "goodput_tokens_s", "colocated: goodput, tokens/s"),
        ("rates", "requests_per_s", "accepted", "accepted a text and round"),
        ("edge", "requests_per_s", "attainment", "edge: in time"),
        ("urgent", "urgent_share", "attainment", "in time"),
        ("scale", "slo_scale", "attainment", "in time"),
    )
    axes = figure.subplots(len(config.models), len(panels), squeeze=False)
    for line, model in zip(axes, config.models, strict=True):
        for plot, (name, over, measure, label) in zip(line, panels, strict=True):
            here = [one for one in results.rows if (one["figure"], one["model"]) == (name, model)]
            curves(plot, here, over, measure)
            plot.set(title=f"{model}, {label}", xlabel=over.replace("_per_s", "/s").replace("_", " "))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(POLICIES))
    return figure


def curves(plot: Axes, rows: Sequence[dict[str, Any]], over: str, measure: str) -> None:
    for number, policy in enumerate(POLICIES):
        own = sorted((one[over], one[measure]) for one in rows if one["policy"] == policy)
        if own:
            plot.plot(*zip(*own, strict=True), label=policy, **styles.curve(number))
    plot.set_ylim(bottom=0.0)


def main() -> int:
    return run("adaserve", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
