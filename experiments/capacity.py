"""How many users one verify GPU carries at a rate that each of them gets: plainly, with draft models, with histories.

Simulated with latency models from datasheets, so **computed, not measured**. Drafts come from a draft model that shares
the verify node's GPU (*co-located*: its passes take time of every round, its weights and caches memory), or from draft
nodes of their own (*remote*), a pass for each token or all tokens of a request in one pass (*parallel*). Whoever drafts,
the same recorded texts say what is accepted. Users are counted up to where one with texts of the worst domain falls
below the rate, or memory is full.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.presets import PARALLEL_DECAY
from experiments.simulation.serving import (
    BUDGET_EACH,
    Gpu,
    Plan,
    Point,
    User,
    bytes_held,
    curve,
    drafting,
    own_draft,
    preset,
    preset_draft,
    profiled,
    serve,
    shared_with_draft_model,
)
from goodspeed.fair.round_time import Linear

__all__ = ["Gpu", "Plan", "Point", "User", "bytes_held", "curve", "drafting", "most_clients", "preset", "preset_draft"]
__all__ += ["profiled", "serve", "table"]  # a notebook's


@dataclass(frozen=True)
class Config:
    family: str  # of `presets.FAMILIES`
    rates: list[float]  # tokens/s of every user; the first is the headline
    context_tokens: int  # of a text when it begins
    output_tokens: int  # of a text; on average half of them are there
    temperature: float  # of the recorded texts
    round_trip_s: float  # to the draft nodes
    fewest: int  # users that are tried; then twice as many, and so on
    most: int  # at most so many, if memory holds them
    warm_tokens: int
    counted_tokens: int
    seed: int


@dataclass(frozen=True)
class Way:
    """Who drafts for users' texts."""

    says: str
    model: str = "none"  # "own": on the verify node's GPU; "remote"
    parallel: bool = False


WAYS = {
    "plain": Way("no draft model"),
    "co_located": Way("draft model on the same GPU", "own"),
    "co_located_parallel": Way("... drafting in parallel", "own", parallel=True),
    "remote": Way("draft models on L4s", "remote"),
    "remote_parallel": Way("... drafting in parallel", "remote", parallel=True),
}
PASS_TOKENS = 4
"""A draft node asks its model for so many tokens at once, so a parallel one drafts them in one pass."""

TITLE = "Draft models elsewhere leave the GPU its memory; a draft model beside the target takes it from users"
OURS, RIVAL = "remote_parallel", "co_located"
HISTORY = "_with_history"
NAMES = [name + history for history in ("", HISTORY) for name in WAYS]


def plan(name: str, config: Config) -> Plan:
    """One of the NAMES."""
    way = WAYS[name.removesuffix(HISTORY)]
    is_own = way.model == "own"
    passes = 1 if is_own else 2
    cost = Linear() if is_own else preset_draft(config.family)
    return Plan(
        shared_with_draft_model(config.family) if is_own else preset(config.family),
        (User(0.0, cost, 0.0 if is_own else config.round_trip_s),),
        context_tokens=config.context_tokens,
        warm_tokens=config.warm_tokens,
        counted_tokens=config.counted_tokens,
        temperature=config.temperature,
        has_model=way.model != "none",
        ngrams="history" if name.endswith(HISTORY) else "off",
        own_draft_cost=own_draft(config.family) if is_own else None,
        parallel_decay=PARALLEL_DECAY if way.parallel else None,
        max_draft=passes * PASS_TOKENS if way.parallel else BUDGET_EACH,
    )


def most_held(gpu: Gpu, config: Config) -> int:
    """Users whose texts fit into the GPU's memory."""
    held = gpu.sessions_that_fit(config.context_tokens + config.output_tokens // 2)
    assert held is not None, "presets know their memory"
    return int(held)


def sizes(gpu: Gpu, config: Config) -> list[int]:
    """Numbers of users that are tried, up to a full memory."""
    last = min(config.most, most_held(gpu, config))
    doubled = [config.fewest << power for power in range(16)]
    return [number for number in doubled if number < last] + [last]


def experiment(config: Config) -> Outcome:
    curves: dict[str, list[Point]] = {}
    for name in parts("ways", NAMES):
        chosen = plan(name, config)
        curves[name] = curve(chosen, sizes(chosen.gpu, config), plain=name == "plain", seed=config.seed)
    rows = [_row(name, curves[name], rate, config) for rate in config.rates for name in NAMES]
    return Outcome(
        rows=rows,
        curves=[{"way": name} | _flat(point) for name in NAMES for point in curves[name]],
        findings=[_finding(rows, rate) for rate in config.rates],
        facts=facts(rows, config.rates),
        text=told(rows, config),
    )


def _flat(point: Point) -> dict[str, Any]:
    told = asdict(point) | {"slowest": point.slowest}
    del told["speeds"]
    return told


def _row(name: str, points: Sequence[Point], rate: float, config: Config) -> dict[str, Any]:
    chosen = plan(name, config)
    users, bound = carried(points, rate, most_held(chosen.gpu, config))
    at = [point.num_clients for point in points]
    drafted = float(np.interp(users, at, [point.drafted for point in points]))
    row = {"way": name, "rate": rate, "users": users, "bound": bound, "drafted": drafted}
    return row | {"formula": formula(chosen, users, drafted, config) if users else None}


def carried(points: Sequence[Point], rate: float, most: int) -> tuple[int, str]:
    """The most users who all get `rate`, and what bounds them: "time", "memory" (`most`), or "tried".

    Between two numbers that were tried the seconds of a token are taken to grow evenly.
    """
    if points[0].slowest < rate:
        return 0, "time"
    for before, after in pairwise(points):
        if after.slowest < rate:
            first_s, last_s = 1 / before.slowest, 1 / after.slowest
            share = (1 / rate - first_s) / (last_s - first_s)
            return int(before.num_clients + share * (after.num_clients - before.num_clients)), "time"
    last = points[-1].num_clients
    return last, "memory" if last == most else "tried"


def formula(chosen: Plan, users: int, drafted: float, config: Config) -> float | None:
    """1 + gamma t_draft / t_verify, by which "Speculation at a Distance" (arXiv 2606.25091) has remote drafting carry
    more users than co-located at the same rate; with the rounds of that many users. None: nothing shares the GPU.

    gamma t_draft is one pass where tokens are drafted in parallel.
    """
    if (draft := chosen.own_draft_cost) is None:
        return None
    context = users * (config.context_tokens + config.output_tokens // 2)
    verify_s = chosen.gpu.round_cost.round_s(users * (1 + drafted), users, context)
    if chosen.parallel_decay is not None:
        return 1 + draft.round_s(users * (1 + drafted), users, context) / verify_s
    return 1 + drafted * draft.round_s(users, users, context) / verify_s


def by_way(rows: Sequence[Mapping[str, Any]], rate: float) -> dict[str, Mapping[str, Any]]:
    return {row["way"]: row for row in rows if row["rate"] == rate}


def over(users: int, others: int) -> float | None:
    return users / others if others else None


def _finding(rows: Sequence[Mapping[str, Any]], rate: float) -> Finding:
    found = by_way(rows, rate)
    ratio = over(found["remote"]["users"], found[RIVAL]["users"])
    what = f"users at {rate:g} tokens/s each, draft models on L4s over one on the same GPU"
    return Finding(what, float("nan") if ratio is None else ratio, paper=found[RIVAL]["formula"])


def facts(rows: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> dict[str, Any]:
    """`users`, `over_plain` and so on of the first rate by way; the same of all rates under `rates`."""
    of_rates = {f"{rate:g}": _facts(by_way(rows, rate)) for rate in rates}
    return of_rates[f"{rates[0]:g}"] | {"rate": rates[0], "rates": of_rates}


def _facts(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    plain = found["plain"]["users"]
    return {
        "users": {name: row["users"] for name, row in found.items()},
        "over_plain": {name: over(row["users"], plain) for name, row in found.items()},
        "bound": {name: row["bound"] for name, row in found.items()},
        "drafted": {name: row["drafted"] for name, row in found.items()},
        "remote_over_co_located": over(found["remote"]["users"], found[RIVAL]["users"]),
        "formula": found[RIVAL]["formula"],
    }


def told(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
    """The headline, the table of users by way and rate, and the formula's ratio beside ours."""
    first = by_way(rows, config.rates[0])
    lines = [
        f"One H100 with {config.family} carries at {config.rates[0]:g} tokens/s each: {first['plain']['users']} users "
        f"without drafts, {first[RIVAL]['users']} with a draft model on the same GPU,",
        f"{first['remote']['users']} with draft models on L4s, {first[OURS]['users']} if these draft in parallel. "
        "Bound by t(ime) or m(emory); + means that no more were tried.",
        "",
        f"{'users who each get':34}" + "".join(f"{rate:>8g} tokens/s " for rate in config.rates),
    ]
    for name in NAMES:
        says = WAYS[name.removesuffix(HISTORY)].says
        cells = [_cell(by_way(rows, rate), name) for rate in config.rates]
        lines.append(f"{says + (', history' if name.endswith(HISTORY) else ''):34}" + "".join(cells))
    for title, key in (("L4s over the same GPU", "ours"), ("  by 1 + gamma t_draft / t_verify", "paper")):
        values = [getattr(_finding(rows, rate), key) for rate in config.rates]
        lines.append(
            f"{title:34}" + "".join(f"{'-' if value is None else f'{value:.2f}':>10}{'':8}" for value in values)
        )
    return "\n".join(lines)


def _cell(found: Mapping[str, Mapping[str, Any]], name: str) -> str:
    row, mark = found[name], {"time": "t", "memory": "m", "tried": "+"}
    ratio = over(row["users"], found["plain"]["users"])
    return f"{row['users']:6} {mark[row['bound']]} {'' if ratio is None else f'({ratio:.2f})':9}"


def most_clients(points: Sequence[Point], wanted: float) -> str:
    """The number of clients at which a user of the slowest kind falls below `wanted` tokens/s, between those tried."""
    if points[0].slowest < wanted:
        return f"fewer than {points[0].num_clients}"
    for before, after in pairwise(points):
        if after.slowest < wanted:
            share = (before.slowest - wanted) / (before.slowest - after.slowest)
            return f"about {before.num_clients + share * (after.num_clients - before.num_clients):.0f}"
    return f"more than {points[-1].num_clients}"


def table(curves: Mapping[str, Sequence[Point]]) -> str:
    """Tokens/s of a user of the slowest kind and of all, tokens of a draft, and how busy the GPU is."""
    lines = [f"{'':28}{'clients':>8}{'a user':>9}{'all':>9}{'drafted':>9}{'GPU busy':>10}"]
    for name, points in curves.items():
        lines += [
            f"{name:28}{point.num_clients:8}{point.slowest:9.1f}{point.tokens_per_s:9.0f}"
            f"{point.drafted:9.1f}{point.busy:10.0%}"
            for point in points
        ]
    return "\n".join(lines)


def draw(config: Config, results: Results) -> Figure:
    """Tokens/s of a user over the number of users, with and without histories."""
    figure = harness.new_figure(10.0, 4.8)
    numbers = styles.numbers(WAYS, OURS)
    for axes, history in zip(figure.subplots(1, 2, sharey=True), ("", HISTORY), strict=True):
        for name in WAYS:
            points = [one for one in results.curves if one["way"] == name + history]
            users, speeds = [one["num_clients"] for one in points], [one["slowest"] for one in points]
            axes.plot(users, speeds, label=name.replace("_", " "), **styles.curve(numbers[name]))
        axes.axhline(config.rates[0], color="black", linewidth=0.8, label=f"{config.rates[0]:g} tokens/s")
        axes.set(xscale="log", xlabel="users of the GPU, up to a full memory", ylim=(0, None))
        axes.set_title("with histories" if history else "without histories")
        axes.set_ylabel("tokens/s of a user of the worst domain")
    return styles.finish(figure, TITLE, OURS.replace("_", " "))


def main() -> int:
    return harness.run("capacity", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
