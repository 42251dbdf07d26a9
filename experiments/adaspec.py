"""AdaSpec's figures 7, 8, 10 to 12, its Table 2: how much sooner texts are done if lengths follow load and confidence.

Requests of six kinds of task come by two recorded services, or so many at once. The paper's policies run in its rounds:
one device drafts for all, step by step, and then verifies (`open_loop/together.py`). Ours runs as it serves by default,
with draft nodes of their own. Every policy meets the same requests, with texts that are as hard to draft, and the same
times of passes: those of the paper's Eq. (2), or of a roofline, below whose ridge tokens cost nothing.

There confidence is acceptance, as the paper's figures 7 and 8 have it. What it tells of a real model is found along
recorded texts (`texts/reliability.py`).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from random import Random
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.drafters import Adaptive, Fixed, Threshold
from experiments.simulation.open_loop.mix import Kind, mixed
from experiments.simulation.open_loop.service import Service, serve, with_draft_nodes
from experiments.simulation.open_loop.together import Drafter, Server
from experiments.simulation.open_loop.traffic import rescaled
from experiments.simulation.presets import LLAMA_1B, LLAMA_7B, LLAMA_68M, Device, Model, charged, roofline
from experiments.simulation.texts.reliability import CALIBRATED, CLAIMED, reliability
from goodspeed.fair.round_time import CostModel

A100 = Device(bytes_per_s=1.555e12, flops=312e12)  # 40 GB
EIGHT_A100 = Device(bytes_per_s=8 * A100.bytes_per_s, flops=8 * A100.flops)
LLAMA_70B = Model(80, 8192, 64, 8, 128, 28672, 128_256, tied=False)
ALL_REDUCE_S = 2e-5
"""Eight devices add up small activations twice a layer; an assumption, of the order that NVLink's users report."""

_IN_ALL = charged(LLAMA_70B, EIGHT_A100)
MACHINES: dict[str, tuple[CostModel, CostModel]] = {
    "7B": (charged(LLAMA_7B, A100), charged(LLAMA_68M, A100)),
    "7B, roofline": (roofline(LLAMA_7B, A100), roofline(LLAMA_68M, A100)),
    "70B": (
        replace(_IN_ALL, fixed_s=_IN_ALL.fixed_s + 2 * LLAMA_70B.num_layers * ALL_REDUCE_S),
        charged(LLAMA_1B, A100),
    ),
}
"""Passes of target and draft model, on one A100, and on eight of which one drafts."""

NINE_OF_TEN = 0.9
WITHOUT, THEIRS, OURS = "AR", "AdaSpec", "gradient"
UNSURE = 0.15
"""Confidence below which the threshold's drafts end. With it they are about as long as the paper's (6.0, 6.6 and 5.3
tokens in the mean); transformers' default 0.4 would be shorter here, where confidence is never too high."""

LENGTHS = (1, 3, 5)
FIXED_LENGTHS = tuple(f"SD {length}" for length in LENGTHS)
TOGETHER: dict[str, Callable[[float], Drafter]] = {
    WITHOUT: lambda most_s: Fixed(0),
    "SD 1": lambda most_s: Fixed(1),
    "SD 3": lambda most_s: Fixed(3),
    "SD 5": lambda most_s: Fixed(5),
    "threshold": lambda most_s: Threshold(UNSURE),
    "AdaSpec-": lambda most_s: Adaptive(eliminates=False, most_s=most_s),
    THEIRS: lambda most_s: Adaptive(most_s=most_s),
}
"""The paper's policies, by the time that a round may take at most; `AdaSpec-` is without Alg. 2."""

POLICIES = (*TOGETHER, OURS)
SHOWN = (OURS, THEIRS, "SD 3", "threshold")
"""Those in the picture, beside the speed without drafts."""

TABLE_2 = {
    "trace 1": {"threshold": (5.97, 1.41, 1.16), "AdaSpec-": (3.57, 1.22, 1.71), THEIRS: (3.42, 1.20, 1.73)},
    "trace 2": {"threshold": (6.56, 1.42, 1.22), "AdaSpec-": (3.13, 1.17, 1.40), THEIRS: (2.96, 1.14, 1.42)},
    "trace 3": {"threshold": (5.26, 1.38, 1.66), "AdaSpec-": (3.73, 1.26, 1.78), THEIRS: (3.63, 1.25, 1.79)},
}
"""The paper's drafted and accepted tokens a round, and how many times as quick as without drafts."""

OVER_FIXED, OVER_THRESHOLD = (1.07, 1.18), (1.09, 1.58)
"""The paper's ranges."""

TOLD = {CLAIMED: "claimed", CALIBRATED: "calibrated"}
"""Those in the picture."""

FEWEST_SHOWN = 20
"""Tokens of a bin in the picture: the share of fewer is mostly chance. The error counts all."""

MOST_OFF = 0.05
"""The expected calibration error that we want in every domain at most."""


@dataclass(frozen=True)
class Traffic:
    """The times at which requests come."""

    trace: str
    begin_s: float
    requests_per_s: float


@dataclass(frozen=True)
class Config:
    """One section of `configs/adaspec.toml`."""

    seed: int
    duration_s: float
    clients: int
    evenness: float  # of the probabilities of drafted tokens (`mix.py`)
    budget: int
    max_round_tokens: int
    machines: list[str]  # of MACHINES
    slo_scales: list[float]  # of what nine of ten texts keep without drafts
    batches: list[int]  # of requests that come at once (Fig. 12)
    traffic: dict[str, Traffic]
    kinds: list[Kind]
    temperatures: list[float]  # of the recorded texts
    draft_length: int  # of drafts along these
    recordings: str = ""


def experiment(config: Config) -> Outcome:
    known, bins = reliability(config.recordings, config.temperatures, config.draft_length)
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    names = [*config.traffic, *(f"batch {number}" for number in config.batches)]
    for machine, name in parts("services", [(machine, name) for machine in config.machines for name in names]):
        done = {policy: served(config, machine, name, policy) for policy in POLICIES}
        rows += [row(machine, name, policy, one, done[WITHOUT]) for policy, one in done.items()]
        if (machine, name) == (config.machines[0], names[0]):
            curves += scales(config, machine, name, done)
    return Outcome(
        rows=rows,
        curves=[*curves, *bins],
        findings=[*findings(rows, curves), *calibrated(known)],
        facts={"slo": curves, "calibration": known},
    )


def served(config: Config, machine: str, name: str, policy: str, tpot_s: float | None = None) -> Service:
    """Requests as one policy served them. tpot_s: their service level."""
    target, draft = MACHINES[machine]
    arrivals = requests(config, name, tpot_s)
    if policy != OURS:
        drafter = TOGETHER[policy](inf if tpot_s is None else tpot_s)
        return Server(target, draft, config.max_round_tokens).serve(arrivals, drafter)
    settings = with_draft_nodes(config.clients, config.budget, config.max_round_tokens, target, draft)
    return serve(settings, arrivals, config.seed)


def requests(config: Config, name: str, tpot_s: float | None) -> list[Arrival]:
    """The same ones for every policy. name: of the traffic, or "batch 8" for eight at once."""
    if name in config.traffic:
        traffic = config.traffic[name]
        times = rescaled(traffic.trace, traffic.requests_per_s, config.duration_s, traffic.begin_s)
    else:
        times = [0.0] * int(name.removeprefix("batch "))
    kinds = [replace(kind, tpot_s=tpot_s) for kind in config.kinds]
    return mixed(times, kinds, config.evenness, Random(config.seed))


def row(machine: str, name: str, policy: str, done: Service, without: Service) -> dict[str, Any]:
    return {
        "machine": machine,
        "traffic": name,
        "policy": policy,
        "requests": len(done.texts),
        "mean_s": done.mean_s,
        "speedup": without.mean_s / done.mean_s,
        "drafted": done.drafted,
        "accepted": done.accepted,
        "acceptance": done.num_accepted / max(1, done.num_drafted),
        "tpot_ms": 1000 * float(np.mean(done.tpots())),
        "round_ms": 1000 * done.busy_s / done.num_rounds,
    }


def scales(config: Config, machine: str, name: str, done: dict[str, Service]) -> list[dict[str, Any]]:
    """Attainment and speed by service level. Only those who ask for it are served anew."""
    kept_s = float(np.quantile(done[WITHOUT].tpots(), NINE_OF_TEN))
    found = []
    for scale in config.slo_scales:
        for policy, one in done.items():
            own = one
            if policy in (OURS, THEIRS):
                own = served(config, machine, name, policy, scale * kept_s)
            attained = float(np.mean(np.array(own.tpots()) <= scale * kept_s))
            speedup = done[WITHOUT].mean_s / own.mean_s
            key = {"machine": machine, "slo_scale": scale, "policy": policy}
            found.append(key | {"attainment": attained, "speedup": speedup})
    return found


def calibrated(known: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Finding]:
    """Judges the worst domain of each draft model and temperature."""
    found = []
    for model, temperatures in known.items():
        for temperature, domains in temperatures.items():
            worst = max(domains, key=lambda domain: float(domains[domain][CALIBRATED]))
            off = domains[worst][CALIBRATED]
            what = f"{model}, T = {temperature}: calibration error in the worst domain ({worst})"
            found.append(Finding.at_most(what, off, MOST_OFF))
    return found


def findings(rows: Sequence[dict[str, Any]], curves: Sequence[dict[str, Any]]) -> list[Finding]:
    found = []
    for machine, name in dict.fromkeys((one["machine"], one["traffic"]) for one in rows):
        where = f"{machine}, {name}"
        here = {one["policy"]: one for one in rows if (one["machine"], one["traffic"]) == (machine, name)}
        for policy, paper in TABLE_2.get(name, {}).items():
            for measure, value in zip(("drafted", "accepted", "speedup"), paper, strict=True):
                found.append(Finding(f"{where}, {policy}: {measure}", here[policy][measure], value))
        found += _over(where, here)
    for one in curves:
        if one["slo_scale"] == 1.0:
            reached = one["attainment"] >= NINE_OF_TEN if one["policy"] in (OURS, THEIRS) else None
            what = f"{one['machine']}: attained at scale 1, {one['policy']}"
            found.append(Finding(what, one["attainment"], None, "above 0.9" if reached is not None else "", reached))
    return found


def _over(where: str, here: dict[str, dict[str, Any]]) -> list[Finding]:
    """The speed of AdaSpec, and of ours, over the best fixed length and over the threshold."""
    best = max(here[policy]["speedup"] for policy in FIXED_LENGTHS)
    found = []
    for policy in (THEIRS, OURS):
        for what, speed, (least, most) in (
            ("best fixed length", best, OVER_FIXED),
            ("threshold", here["threshold"]["speedup"], OVER_THRESHOLD),
        ):
            over = here[policy]["speedup"] / speed
            wanted = f"{least:g} to {most:g}"
            found.append(Finding(f"{where}: {policy} over the {what}", over, None, wanted, over >= least))
    found.append(Finding(f"{where}: {OURS} over no drafts", here[OURS]["speedup"]))
    return found


def draw(config: Config, results: Results) -> Figure:
    """Speed by machine, service and policy; below, for each draft model, how often tokens agree by what was told."""
    bins = [one for one in results.curves if one.get("known_by") in TOLD]
    models = list(dict.fromkeys(one["draft_model"] for one in bins))
    numbers = styles.numbers([*SHOWN, *(_name(*each) for each in product(TOLD, config.temperatures))], OURS)
    figure = new_figure(14.0, 9.6)
    above, below = figure.subfigures(2, 1, squeeze=False).flat
    _draw_speeds(above.subplots(), config, results.rows, numbers)
    for panel, model in zip(below.subplots(1, len(models), squeeze=False).flat, models, strict=True):
        _draw_reliability(panel, [one for one in bins if one["draft_model"] == model], numbers)
        panel.set_title(f"{model}: a curve for each domain")
    title = (
        "Lengths by load and confidence beat fixed ones; calibrated confidence comes true; ours drafts beside rounds"
    )
    return styles.finish(figure, title, OURS)


def _name(by: str, temperature: float) -> str:
    return f"{TOLD[by]}, T = {temperature:g}"


def _draw_speeds(panel: Axes, config: Config, rows: Sequence[dict[str, Any]], numbers: Mapping[str, int]) -> None:
    width = 0.8 / len(SHOWN)
    groups = list(product(config.machines, config.traffic))
    speeds = {(one["machine"], one["traffic"], one["policy"]): one["speedup"] for one in rows}
    for place, policy in enumerate(SHOWN):
        places = np.arange(len(groups)) + width * (place - (len(SHOWN) - 1) / 2)
        own = [speeds[*group, policy] for group in groups]
        panel.bar(places, own, width, label=policy, **styles.bar(numbers[policy]))
    panel.axhline(1.0, color="black", linewidth=0.8)
    panel.set_xticks(range(len(groups)), ["\n".join(group) for group in groups])
    panel.set_ylabel(f"times as fast as without drafts ({WITHOUT})")


def _draw_reliability(panel: Axes, bins: Sequence[dict[str, Any]], numbers: Mapping[str, int]) -> None:
    """Bins of a draft model: a marker for each domain."""
    panel.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    curves: dict[tuple[str, float, str], list[tuple[float, float]]] = {}
    for one in bins:
        if one["tokens"] >= FEWEST_SHOWN:
            key = one["known_by"], one["temperature"], one["domain"]
            curves.setdefault(key, []).append((one["predicted"], one["agreed"]))
    domains = list(dict.fromkeys(domain for *_, domain in curves))
    for (by, temperature, domain), points in curves.items():
        name = _name(by, temperature)
        style = styles.curve(numbers[name]) | {"marker": styles.MARKERS[domains.index(domain) % len(styles.MARKERS)]}
        panel.plot(*zip(*points, strict=True), label=name, **style)
    panel.set(xlabel="probability of acceptance", ylabel="share of tokens that agree", xlim=(0, 1), ylim=(0, 1))


if __name__ == "__main__":
    sys.exit(run("adaspec", __doc__ or "", experiment, draw, Config))
