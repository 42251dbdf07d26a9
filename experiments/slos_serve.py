"""SLOs-Serve's figures 9 and 14: how many requests per second keep their service levels, with promises and without.

Requests come as they did to two real services, have the lengths of the paper's data sets and its service levels: a
first token within a multiple of the time in which the prompt is read alone, and a time per token of every ten tokens.
The capacity of a policy is the highest rate at which at most a tenth of all requests miss either, found by bisection.
Whoever is promised nothing counts as much as the others. Rounds take what the paper's authors have of OPT-6.7B on an
A100; our drafts are made elsewhere. Our nodes' state machines run as they are, the paper's baselines as in
`simulation/open_loop/rivals.py`, without nodes and messages: a hundred times as quick, so a run is ours nearly alone.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import inf
from random import Random
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.crowd import scheduling_ms
from experiments.simulation.open_loop.rivals import (
    BASELINES,
    DISTSERVE,
    SARATHI,
    VLLM,
    VLLM_SPEC,
    Kind,
    Variant,
    variants,
)
from experiments.simulation.open_loop.service import Served, Service, serve, with_draft_nodes
from experiments.simulation.open_loop.stages import Stage, Texts, requests
from experiments.simulation.open_loop.threshold import Tried, highest
from experiments.simulation.open_loop.traffic import window
from experiments.simulation.settings import Settings
from goodspeed.fair.round_time import Linear, Roofline
from goodspeed.slo.attainment import Times

Row: TypeAlias = dict[str, Any]

OURS = "dp"
NO_DRAFTS, NO_PROMISES = "dp, no drafts", "none"
POLICIES: dict[str, dict[str, Any]] = {
    OURS: {"admission": "dp"},
    NO_PROMISES: {"admission": "none"},
    NO_DRAFTS: {"admission": "dp", "max_draft": 0},
}
"""Ours, and what it is without one of its parts: nothing promised, and no drafts."""

PER_S = 1000
"""Rates are tried in thousandths of a request per second."""

STEP = 1.12
"""By so much rates differ until one held and one failed."""

MOST_PER_S = 60.0
"""No rate above is tried: prompts alone would take twice the time that there is."""

ALLOWED, FEW = 0.1, 0.02
"""Shares of requests that may miss their service levels: the paper's, and its stricter one."""

FEW_SCENARIO = "ChatBot"
"""The scenario for which the paper tells the stricter one; its first window has it here."""

ROUND_TERMS = ((6.878e-5, 1.249e-6, 0.02480), (7.523e-5, 3.465e-3, 3.033e-3))
"""a_k, b_k and c_k of a round of OPT-6.7B on an A100, in seconds, by the code of the paper's authors: max_k (a_k n +
b_k s + c_k) with n tokens and s steps of OPT-125m on the same device. In the first term, which is that of few tokens,
the steps are hidden behind reading the target's weights."""


@cache
def a100(num_steps: int = 0) -> Roofline:
    """A round with so many steps of the draft model."""
    return Roofline(tuple(Linear(fixed_s=c + b * num_steps, token_s=a) for a, b, c in ROUND_TERMS))


A100 = a100()
"""A round of ours, whose drafts are made elsewhere."""

DRAFT_STEP = Linear(fixed_s=ROUND_TERMS[1][1])
"""A step of OPT-125m where it is not hidden."""

NOTES = [
    "A request counts if its first token and every ten tokens are in time; the rest counts with the last ten.",
    "A baseline is as good as the best of its variants: memory reserved or preempted, lengths, DistServe's devices.",
]


@dataclass(frozen=True)
class Scenario:
    """Requests and the times at which they come."""

    trace: str
    begins_s: list[float]  # of its windows, each with its own draw of lengths and texts, and a capacity of its own
    requests_per_s: float  # a guess at the capacity
    stages: list[Stage]
    window_s: float = 40.0  # of the trace
    drafts: bool = True  # the paper's model for it has a draft model

    def may_have(self, policy: str) -> bool:
        """False where the paper's model has no draft model, and the policy differs from another only by drafts."""
        return self.drafts or policy not in (VLLM_SPEC, NO_DRAFTS)


@dataclass(frozen=True)
class Base:
    """Settings of all worlds here and in `fleet`."""

    seed: int
    processes: int  # 0: one on each core
    ratio: float  # capacities are found within it
    clients: int
    texts: Texts
    budget: int
    max_round_tokens: int
    pool_tokens: int
    scenarios: dict[str, Scenario]

    @property
    def world(self) -> Settings:
        """A verify node and its draft nodes, but for its policy."""
        return with_draft_nodes(self.clients, self.budget, self.max_round_tokens, A100, DRAFT_STEP)

    def squeezed(
        self, name: str, recorded: Sequence[float], window_s: float, requests_per_s: float, seed: int = 0
    ) -> list[Arrival]:
        """A scenario's requests at these times of a window, which are stretched or squeezed to make for the rate.

        seed: added to the settings' own.
        """
        squeeze = len(recorded) / window_s / requests_per_s
        times = [squeeze * at_s for at_s in recorded]
        return requests(times, self.scenarios[name].stages, self.texts, A100, Random(self.seed + seed))


@dataclass(frozen=True)
class Config(Base):
    """One section of `configs/slos_serve.toml`."""

    policies: list[str]  # of ours; the baselines are always there
    crowds: int  # of 10 new requests beside 200


@dataclass(frozen=True)
class Cell:
    """The setting of one capacity."""

    scenario: str
    policy: str
    window: int = 0  # its number; added to the config's seed


def experiment(config: Config) -> Outcome:
    measured = each("capacities", partial(measure, config), list(cells(config)), config.processes)
    rows, curves = [row for row, _ in measured], [load for _, loads in measured for load in loads]
    told = facts(rows, curves) | {"scheduler_ms": scheduling_ms(A100, config.crowds, config.seed)}
    return Outcome(rows=rows, curves=curves, findings=findings(told), facts=told, notes=NOTES)


def cells(config: Config) -> Iterator[Cell]:
    for name, scenario in config.scenarios.items():
        for number, policy in product(range(len(scenario.begins_s)), (*config.policies, *BASELINES)):
            if scenario.may_have(policy):
                yield Cell(name, policy, number)


def measure(config: Config, cell: Cell) -> tuple[Row, list[Row]]:
    """The capacities of a policy in its best variant, with what it made of that load; and every load tried.

    A variant that fails with the load that another one holds is not searched. `capacity_few` is that of the best
    variant by that measure.
    """
    found: list[tuple[Row, Tried]] = []
    few, number, guess = 0, 0, round(PER_S * config.scenarios[cell.scenario].requests_per_s)
    for variant in rivals(config, cell) if cell.policy in BASELINES else [""]:
        tried = Tried(partial(load, config, cell, variant), PER_S)
        search = partial(highest, tried.violations, ratio=config.ratio, step=STEP)
        if not number or tried.violations(number) <= ALLOWED:
            number = search(ALLOWED, start=number or guess, most=round(PER_S * MOST_PER_S))
            found.append((tried.best(number) | {"capacity": number / PER_S}, tried))
        if number and cell.scenario == FEW_SCENARIO and not cell.window and (not few or tried.violations(few) <= FEW):
            few = search(FEW, start=few or max(1, round(number / STEP)), most=number)
    row, tried = max(found, key=lambda pair: pair[0]["capacity"])
    return row | {"capacity_few": few / PER_S}, tried.rows


# -- one load ----------------------------------------------------------------------------------------------------------


def load(config: Config, cell: Cell, variant: str, requests_per_s: float) -> Row:
    """The row of a policy with so many requests per second. A run of ours is lost once too many texts missed.

    The share of a lost run is that of texts missed by then, of all; it has no other figures but those of promises.
    """
    key = {"scenario": cell.scenario, "policy": cell.policy, "window": cell.window}
    key |= {"variant": variant, "requests_per_s": requests_per_s}
    if cell.policy in BASELINES:
        num_gpus, serve_with = rivals(config, cell)[variant]
        return key | measures(serve_with(arrivals(config, cell, num_gpus * requests_per_s)))
    coming = arrivals(config, cell, requests_per_s)
    done = served(config, cell, coming, ALLOWED * len(coming))
    if not done.num_missed:
        return key | measures(done)
    lost = {"requests": len(coming), "violations": done.num_missed / len(coming)}
    return key | dict.fromkeys(MEASURES) | lost | promises(done)


def served(config: Config, cell: Cell, coming: Sequence[Arrival], most_missed: float = inf) -> Service:
    """Returns what our nodes make of these requests."""
    changes = POLICIES[cell.policy] | ({} if config.scenarios[cell.scenario].drafts else {"max_draft": 0})
    settings, seed = replace(config.world, **changes), config.seed + cell.window
    return serve(settings, coming, seed, pool_tokens=config.pool_tokens, most_missed=most_missed)


def rivals(config: Config, cell: Cell) -> Mapping[str, Variant]:
    """The variants of a baseline, by name."""
    tightest_s = min(stage.tpot_ms for stage in config.scenarios[cell.scenario].stages) / 1000
    return variants(Kind(a100, config.pool_tokens), A100.tokens_in(tightest_s, 0, 0))[cell.policy]


def arrivals(config: Config, cell: Cell, requests_per_s: float) -> list[Arrival]:
    """Every request of a scenario's window, its times stretched or squeezed: so bursts are as in the trace."""
    scenario = config.scenarios[cell.scenario]
    recorded = window(scenario.trace, scenario.begins_s[cell.window], scenario.window_s)
    return config.squeezed(cell.scenario, recorded, scenario.window_s, requests_per_s, cell.window)


def promises(done: Service) -> Row:
    """Returns how many promised texts are over, and how many of these promises were broken."""
    outcomes = Counter(text.kept.outcome for text in done.promised)
    return {"num_promised": outcomes.total(), "promised_late": outcomes["late"], "promised_slow": outcomes["slow"]}


def measures(done: Service) -> Row:
    promised, outcomes = done.promised, Counter(text.kept.outcome for text in done.texts)
    others = [text for text in done.texts if not text.kept.promised]
    return promises(done) | {
        "requests": len(done.texts),
        "violations": 1.0 - done.attainment,
        "late": outcomes["late"] / len(done.texts),
        "slow": outcomes["slow"] / len(done.texts),
        "promised": len(promised) / len(done.texts),
        "promised_attained": fmean(text.attained for text in promised) if promised else None,
        "others_attained": fmean(text.attained for text in others) if others else None,
        "goodput_tokens_s": done.goodput,
        "drafted": done.drafted,
        "accepted": done.accepted,
        "round_ms": 1000 * done.busy_s / done.num_rounds,
        "busy": done.busy_s / done.seconds,
        "preempted": done.num_preempted,
        "scheduling_ms_p99": 1000 * float(np.quantile([one.seconds for one in done.scheduling] or [0.0], 0.99)),
    }


MEASURES = tuple(measures(Service([Served(Times(0.0).kept(), 1, 1.0)], 1.0, num_rounds=1, num_verdicts=1)))
"""The figures of a row."""


# -- the paper's claims beside ours ------------------------------------------------------------------------------------

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
    def of(cls, values: Sequence[float]) -> "Ratio":
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
    over_best = ratios(rows, "capacity", COLOCATED)
    own = [row for row in rows if row["policy"] == OURS and row["promised"] is not None]
    tried = [load for load in loads if load["policy"] == OURS]
    return {
        "capacity": means(rows, "capacity"),
        "capacity_few": means(few, "capacity_few"),
        "over": {name: ranges(found) for name, found in over.items()},
        "geometric_mean": {name: overall(found) for name, found in over.items() if found},
        "over_best": ranges(over_best),
        "over_best_mean": overall(over_best),
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
            max(own[ours], LEAST_CAPACITY) / max(LEAST_CAPACITY, *(own[name] for name in theirs if name in own))
            for own in windows.values()
            if ours in own and own.keys() & set(theirs)
        ]
        for scenario, windows in found.items()
    }
    return {scenario: values for scenario, values in over.items() if values}


def ranges(found: dict[str, list[float]]) -> dict[str, Ratio]:
    return {scenario: Ratio.of(values) for scenario, values in found.items()}


def overall(found: dict[str, list[float]]) -> Ratio:
    """The geometric mean of all scenarios; its range is that over windows that all scenarios have."""
    by_window = Ratio.of([geometric_mean(values) for values in zip(*found.values(), strict=False)])
    return by_window._replace(mean=geometric_mean(geometric_mean(values) for values in found.values()))


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


def draw(_: Config, results: Results) -> Figure:
    """Capacities over that of vLLM, by scenario, with the range over the windows."""
    figure = new_figure(10.0, 4.8)
    axes = figure.subplots()
    rows = results.rows
    scenarios, served = list(dict.fromkeys(one["scenario"] for one in rows)), {one["policy"] for one in rows}
    shown = styles.numbers([one for one in (OURS, NO_PROMISES, *BASELINES) if one in served], OURS)
    width = 0.8 / len(shown)
    for place, (policy, number) in enumerate(shown.items()):
        over = ranges(ratios(rows, "capacity", [VLLM], ours=policy))
        places = [scenarios.index(name) + width * (place - (len(shown) - 1) / 2) for name in over]
        heights = [one.mean for one in over.values()]
        errors = [[one.mean - one.least for one in over.values()], [one.most - one.mean for one in over.values()]]
        axes.bar(places, heights, width, label=policy, yerr=errors, **styles.bar(number))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(scenarios)), scenarios)
    axes.set_ylabel("requests/s with at most 10 % missed,\nover vLLM's")
    return styles.finish(figure, "Requests that keep their service levels, by every ten tokens", OURS)


if __name__ == "__main__":
    sys.exit(run("slos_serve", __doc__ or "", experiment, draw, Config))
