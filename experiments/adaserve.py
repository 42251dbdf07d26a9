"""AdaServe's figures 8 to 12, 14 and 15: which texts keep their service level, by policy, as the load grows.

Requests come as they did to a real service, rescaled to the paper's rates: code completions that must be nearly as
quick as a machine without load, chats, and summaries that may take their time. Rounds take what the paper's authors
measured on four and two A100. Every policy meets the same requests, with texts that are as hard to draft. On the
paper's hardware the draft model shares the target's devices, and all wait for it (`open_loop/together.py`): so run
`adaserve`, the paper's own trees and selection, with and without its SLO phase; `adaserve, tuned`, with the constants
that serve best here; the paper's baselines; and `adaptive`, AdaSpec's lengths. `gradient` is our default, with eight
draft nodes of their own, and `fixed, beside rounds` has as many; *edge* ones are some way off, and there every text of
`fixed` has one of its own for whose drafts it waits (SLED).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean, median
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.drafters import Adaptive, Fixed, Trees
from experiments.simulation.open_loop.mix import Kind, bells, mixed
from experiments.simulation.open_loop.service import Service, serve, with_draft_nodes
from experiments.simulation.open_loop.together import Drafter, Server
from experiments.simulation.open_loop.traffic import Tabled, rescaled
from goodspeed.fair.round_time import Linear

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

TOGETHER = (*BASELINES, ADAPTIVE, PUBLISHED, NO_PHASE, TUNED)
"""Where the draft model shares the target's devices."""

POLICIES = (*TOGETHER, OURS)
SHOWN = (OURS, PUBLISHED, ADAPTIVE, "fixed 4", "chunked prefill")
"""Those in the picture: a baseline of each kind."""

NOTES = [
    "A ratio is that to the best baseline of its world; at the highest rate, or else the best of a figure (`up to`).",
    "Where no text was late, one of all is assumed.",
]


@dataclass(frozen=True)
class Model:
    """A target on its devices, and its draft model."""

    round_tokens: list[float]
    round_ms: list[float]
    step_ms: float  # of the draft model, for a token of each text
    baseline_ms: float  # a token without load
    requests_per_s: list[float]
    beyond: float  # the paper's rates, where its own devices are too few
    adaserve: Trees  # as published
    tuned: list[int]  # c_1 and c_2 of Eqs. (8) and (9), which the paper does not tell, as they serve best here

    def drafter(self, policy: str) -> Drafter:
        """Decides on drafts where the draft model shares the target's devices."""
        c1, c2 = self.tuned
        known: dict[str, Drafter] = {
            ADAPTIVE: Adaptive(),
            PUBLISHED: self.adaserve,
            NO_PHASE: replace(self.adaserve, slo_phase=False),
            TUNED: replace(self.adaserve, c1=c1, c2=c2),
        }
        length = int(policy.removeprefix("fixed ")) if policy.startswith("fixed ") else 0
        return known.get(policy, Fixed(length))

    @property
    def cost(self) -> Tabled:
        return Tabled(tuple(self.round_tokens), tuple(ms / 1000 for ms in self.round_ms))


@dataclass(frozen=True)
class Config:
    """One section of `configs/adaserve.toml`."""

    seeds: list[int]
    processes: int  # 0: one on each core
    duration_s: float
    trace: str
    begin_s: float
    clients: int
    evenness: float  # of the probabilities of drafted tokens (`mix.py`)
    budget: int
    max_round_tokens: int
    edge_s: list[float]  # one way, at the highest rate
    requests_per_s: float  # where something else varies
    harder: list[float]  # by so much lower acceptance of all kinds, at the highest rate
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
    harder: float = 0.0  # by so much drafted tokens are less likely to be accepted
    bursty: bool = False


def experiment(config: Config) -> Outcome:
    cells = [
        (point, policy, seed) for point, policies in points(config) for policy in policies for seed in config.seeds
    ]
    rows = each("worlds", partial(row, config), cells, config.processes)
    runs = [told(one) for one in rows if one["figure"] == "rates"]
    by_model = {name: ratios(worlds(rows, name, "rates")[-1], OURS) for name in config.models}
    headline = {ratio: {name: by_model[name][ratio] for name in by_model} for ratio in RATIOS}
    return Outcome(
        rows=rows, findings=findings(config.models, rows), facts={"runs": runs, "headline": headline}, notes=NOTES
    )


def points(config: Config) -> Iterator[tuple[Point, Sequence[str]]]:
    """Every world of every figure, and the policies that meet it."""
    for name, model in config.models.items():
        highest = model.requests_per_s[-1]
        for rate in model.requests_per_s:
            yield Point("rates", name, rate), (*POLICIES, BESIDE)
        yield Point("beyond", name, model.beyond), (*POLICIES, BESIDE)
        for latency_s in config.edge_s:
            yield Point("edge", name, highest, latency_s=latency_s), (*SLED, BESIDE, OURS)
        for share in config.urgent_shares:
            yield Point("urgent", name, config.requests_per_s, urgent_share=share), POLICIES
        for scale in config.slo_scales:
            yield Point("scale", name, config.requests_per_s, slo_scale=scale), POLICIES
        for harder in config.harder:
            yield Point(f"harder by {harder:g}", name, highest, harder=harder), POLICIES
        yield Point("bursty", name, config.requests_per_s, bursty=True), POLICIES


def row(config: Config, cell: tuple[Point, str, int]) -> dict[str, Any]:
    """The row of one policy in one world."""
    point, policy, seed = cell
    key = {
        "figure": point.figure,
        "model": point.model,
        "requests_per_s": point.requests_per_s,
        "policy": policy,
        "seed": seed,
        "latency_ms": 1000 * point.latency_s,
        "urgent_share": point.urgent_share,
        "slo_scale": point.slo_scale,
        "harder": point.harder,
    }
    return key | measures(config, served(config, point, policy, seed))


def served(config: Config, point: Point, policy: str, seed: int) -> Service:
    model, arrivals = config.models[point.model], requests(config, point, seed)
    step = Linear(fixed_s=model.step_ms / 1000)
    if policy in TOGETHER:
        first = policy == "prefill first"
        line_s = 2 * point.latency_s if point.figure == "edge" else None
        server = Server(model.cost, step, config.max_round_tokens, first, line_s)
        return server.serve(arrivals, model.drafter(policy))
    settings = with_draft_nodes(
        config.clients, config.budget, config.max_round_tokens, model.cost, step, point.latency_s
    )
    if policy == BESIDE:
        settings = replace(settings, policy="fixed", max_draft=4)
    return serve(settings, arrivals, seed)


def measures(config: Config, done: Service) -> dict[str, float]:
    kept = {kind.name: [text.attained for text in done.texts if text.tier == kind.name] for kind in config.kinds}
    return {
        "requests": len(done.texts),
        "attainment": done.attainment,
        "violations": 1.0 - done.attainment,
        "goodput_tokens_s": done.goodput,
        "median_tpot_ms": 1000 * median(done.tpots()),
        "drafted": done.drafted,
        "accepted": done.accepted,
        "round_ms": 1000 * done.busy_s / done.num_rounds,
        "selection_share": done.selecting,
        **{f"{name}_attainment": fmean(found) if found else 1.0 for name, found in kept.items()},
    }


def requests(config: Config, point: Point, seed: int) -> list[Arrival]:
    """The same ones for every policy."""
    random, kinds = Random(seed), kinds_of(config, point)
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
    kinds = [urgent, *(replace(kind, share=rest * kind.share) for kind in others)]
    return [replace(kind, acceptance=kind.acceptance - point.harder) for kind in kinds]


def told(found: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that others compare."""
    names = ("model", "requests_per_s", "policy", "seed", "attainment", "violations", "goodput_tokens_s")
    return {name: found[name] for name in names}


# -- the papers' claims beside ours ----------------------------------------------------------------------------------

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
    "llama": {"rates": (2.1, 4.3, 1.9), "urgent": (None, 4.3, 1.30), "scale": (None, 4.61, 1.38), "selection": 0.0041},
    "qwen": {"rates": (1.6, 3.2, 1.7), "urgent": (None, 3.7, 1.64), "scale": (None, 3.05, 1.38), "selection": 0.0031},
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


def draw(config: Config, results: Results) -> Figure:
    """Texts in time over the load, a panel for each model."""
    figure = new_figure(5.5 * len(config.models), 4.6)
    panels = figure.subplots(1, len(config.models), squeeze=False).flat
    for panel, model in zip(panels, config.models, strict=True):
        here = [one for one in results.rows if (one["figure"], one["model"]) == ("rates", model)]
        for policy, number in styles.numbers(SHOWN, OURS).items():
            own: dict[float, list[float]] = {one["requests_per_s"]: [] for one in here}
            for one in here:
                if one["policy"] == policy:
                    own[one["requests_per_s"]].append(one["attainment"])
            panel.plot(list(own), [fmean(found) for found in own.values()], label=policy, **styles.curve(number))
        panel.set(title=model, xlabel="requests/s", ylabel="share of texts in time", ylim=(0.0, 1.04))
    return styles.finish(figure, "As the load grows, ours keeps texts in time that others make late", OURS)


if __name__ == "__main__":
    sys.exit(run("adaserve", __doc__ or "", experiment, draw, Config))
