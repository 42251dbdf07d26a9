"""Users that one verify GPU carries at a rate that each of them gets: plainly, with draft models, with histories.

Simulated with latency models from datasheets, so **computed, not measured**, or with `profiles` of another GPU. The
verify node's own work for each session and round is added, in series with the GPU, as measured on one core. Drafts
come from a draft model on the verify node's GPU (*co-located*: its passes take time of every round, its weights and
caches memory), or from draft nodes with GPUs of their own (*remote*). It drafts a token a pass, or all tokens of a
request in one (*parallel*). Whoever drafts, the same recorded texts say what is accepted. Users write texts of all
domains in turn, so their rate is the harmonic mean of the domains'; it is also told how many users there may be if
texts of every domain shall have it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.presets import FAMILIES, H100, PARALLEL_DECAY, charged
from experiments.simulation.serving import (
    BUDGET_EACH,
    Gpu,
    Plan,
    Point,
    curve,
    own_draft,
    preset,
    preset_draft,
    profiled_together,
    shared_with_draft_model,
)
from experiments.simulation.settings import Work
from experiments.simulation.texts import proposals
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import Linear


@dataclass(frozen=True)
class Profiles:
    """Files of `goodspeed profile --json` of two models on the verify node's GPU."""

    target: str
    draft: str


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
    node_s: float  # of the verify node's own work in a round, for each session
    draft_node_s: float  # more of it, where sessions have drafts
    is_charged: bool = False  # every token costs time, also where reading the weights takes longer (`presets.charged`)
    profiles: Profiles | None = None  # instead of the family's models on an H100; memory is not known then
    recordings: str = ""  # a file of recorded texts; empty: the shipped one
    stand_in: int = 2  # which of its draft models stands for the family's smaller one, the first being 0


@dataclass(frozen=True)
class Way:
    """A way of drafting for users' texts."""

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
PARALLEL_TOKENS = 8
"""Longest parallel draft: of one pass at the verify node, of two at a draft node, which asks for four at once."""

TITLE = "A GPU that drafts for itself is quickest for few users; draft models elsewhere leave its memory to its users"
OURS, RIVAL = "remote_parallel", "co_located"
HISTORY = "_with_history"
WIDTH = 40
NAMES = [name + history for history in ("", HISTORY) for name in WAYS]


def plan(name: str, config: Config) -> Plan:
    """One of the NAMES. ConfigError where the recording has no draft model of that number."""
    if config.stand_in >= (number := len(proposals.load(config.recordings).title.draft_models)):
        raise ConfigError(f"stand_in = {config.stand_in}, but the recording has {number} draft models; set a lower one")
    way, family = WAYS[name.removesuffix(HISTORY)], config.family
    is_own = way.model == "own"
    if (profiles := config.profiles) is not None:
        gpu, own = profiled_together(profiles.target, profiles.draft)
    else:
        gpu, own = shared_with_draft_model(family) if is_own else preset(family), own_draft(family)
        if config.is_charged:
            models = FAMILIES[family]
            gpu, own = replace(gpu, round_cost=charged(models.target, H100)), charged(models.drafts[0], H100)
    return Plan(
        gpu,
        Linear() if is_own else preset_draft(family),
        0.0 if is_own else config.round_trip_s,
        context_tokens=config.context_tokens,
        warm_tokens=config.warm_tokens,
        counted_tokens=config.counted_tokens,
        temperature=config.temperature,
        work=Work(config.node_s, config.draft_node_s),
        has_model=way.model != "none",
        ngrams="history" if name.endswith(HISTORY) else "off",
        own_draft_cost=own if is_own else None,
        parallel_decay=PARALLEL_DECAY if way.parallel else None,
        max_draft=PARALLEL_TOKENS if way.parallel else BUDGET_EACH,
        recordings=config.recordings,
        stand_in=config.stand_in,
    )


def most_held(gpu: Gpu, config: Config) -> float:
    """Users whose texts fit into the GPU's memory."""
    return gpu.sessions_that_fit(config.context_tokens + config.output_tokens // 2)


def sizes(gpu: Gpu, config: Config) -> list[int]:
    """Numbers of users that are tried, up to a full memory."""
    last = int(min(config.most, most_held(gpu, config)))
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
        findings=[found for rate in config.rates if (found := _finding(rows, rate)) is not None],
        facts=facts(rows, config.rates),
        text=told(rows, config),
    )


def _flat(point: Point) -> dict[str, Any]:
    told = asdict(point) | {"slowest": point.slowest}
    del told["speeds"]
    return told | {"in_turn": point.in_turn}


def _row(name: str, points: Sequence[Point], rate: float, config: Config) -> dict[str, Any]:
    chosen = plan(name, config)
    at, most = [point.num_clients for point in points], most_held(chosen.gpu, config)
    users, bound = carried(dict(zip(at, [point.in_turn for point in points], strict=True)), rate, most)
    users_worst, bound_worst = carried(dict(zip(at, [point.slowest for point in points], strict=True)), rate, most)
    drafted = float(np.interp(users, at, [point.drafted for point in points]))
    row = {"way": name, "rate": rate, "users": users, "bound": bound, "drafted": drafted}
    row |= {"users_worst": users_worst, "bound_worst": bound_worst}
    return row | {"formula": formula(chosen, users, drafted, config) if users else None}


def carried(speeds: Mapping[int, float], rate: float, most: float) -> tuple[int, str]:
    """The most users who get `rate`, and what bounds them: "time", "memory" (`most`), or "tried".

    speeds: tokens/s of a user, by the number of users; ascending.

    Between two numbers that were tried the seconds of a token are taken to grow evenly.
    """
    numbers = list(speeds)
    if speeds[numbers[0]] < rate:
        return 0, "time"
    for before, after in pairwise(numbers):
        if speeds[after] < rate:
            first_s, last_s = 1 / speeds[before], 1 / speeds[after]
            share = (1 / rate - first_s) / (last_s - first_s)
            return int(before + share * (after - before)), "time"
    return numbers[-1], "memory" if numbers[-1] == most else "tried"


def formula(chosen: Plan, users: int, drafted: float, config: Config) -> float | None:
    """1 + gamma t_draft / t_verify, by which "Speculation at a Distance" (arXiv 2606.25091) has remote drafting carry
    more users than co-located at the same rate; with the rounds of that many users. None: its model drafts nothing.

    gamma t_draft is one pass where tokens are drafted in parallel.
    """
    if (draft := chosen.own_draft_cost) is None or not drafted or chosen.ngrams != "off":
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


def _finding(rows: Sequence[Mapping[str, Any]], rate: float) -> Finding | None:
    """None where the GPU alone carries nobody at that rate."""
    found = by_way(rows, rate)
    ratio = over(found["remote"]["users"], _alone(found))
    what = f"users at {rate:g} tokens/s each, draft models on L4s over the GPU alone, which drafts where it pays"
    return None if ratio is None else Finding(what, ratio, paper=found[RIVAL]["formula"])


def _alone(found: Mapping[str, Mapping[str, Any]]) -> int:
    """Returns the users of the GPU alone: who runs it loads a draft model only where that carries more."""
    return max(int(found[name]["users"]) for name in ("plain", RIVAL))


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
        "users_worst_domain": {name: row["users_worst"] for name, row in found.items()},
        "drafted": {name: row["drafted"] for name, row in found.items()},
        "remote_over_alone": over(found["remote"]["users"], _alone(found)),
        "formula": found[RIVAL]["formula"],
    }


def told(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
    """The headline, the table of users by way and rate, and the formula's ratio beside ours."""
    first = by_way(rows, config.rates[0])
    users = {name: "at least " * (row["bound"] == "tried") + str(row["users"]) for name, row in first.items()}
    lines = [
        f"Users who get {config.rates[0]:g} tokens/s each on {plan(OURS, config).gpu.name}: {users['plain']} without "
        f"drafts, {users[RIVAL]} with a draft model on the same GPU,",
        f"{users['remote']} with draft models on L4s, {users[OURS]} if these draft in parallel. Bound by t(ime) or "
        "m(emory); + means that no more were tried;",
        "in parentheses the share of plain decoding's.",
        "",
        f"{'users who each get':{WIDTH}}" + "".join(f"{rate:>8g} tokens/s" for rate in config.rates),
    ]
    for title, of, names in (("", "", NAMES), ("the same, whichever domain their texts are of", "_worst", WAYS)):
        lines += ["", title] * bool(title)
        for name in names:
            says = WAYS[name.removesuffix(HISTORY)].says + (", history" if name.endswith(HISTORY) else "")
            cells = [_cell(by_way(rows, rate), name, of) for rate in config.rates]
            lines.append(f"{says:{WIDTH}}" + "".join(cells))
    lines.append("")
    for title, key in (("L4s over the GPU alone, above", "ours"), ("... by 1 + gamma t_draft / t_verify", "paper")):
        values = [getattr(_finding(rows, rate), key, None) for rate in config.rates]
        lines.append(
            f"{title:{WIDTH}}" + "".join(f"{'-' if value is None else f'{value:.2f}':>17}" for value in values)
        )
    return "\n".join(lines)


def _cell(found: Mapping[str, Mapping[str, Any]], name: str, of: str) -> str:
    row, mark = found[name], {"time": "t", "memory": "m", "tried": "+"}
    ratio = over(row["users" + of], found["plain"]["users" + of])
    return f"{row['users' + of]:7} {mark[row['bound' + of]]} {'' if ratio is None else f'({ratio:.2f})':>7}"


def draw(config: Config, results: Results) -> Figure:
    """Tokens/s of a user over the number of users, with and without histories."""
    figure = harness.new_figure(10.0, 4.8)
    numbers = styles.numbers(WAYS, OURS)
    for axes, history in zip(figure.subplots(1, 2, sharey=True), ("", HISTORY), strict=True):
        for name in WAYS:
            points = [one for one in results.curves if one["way"] == name + history]
            users, speeds = [one["num_clients"] for one in points], [one["in_turn"] for one in points]
            axes.plot(users, speeds, label=name.replace("_", " "), **styles.curve(numbers[name]))
        axes.axhline(config.rates[0], color="black", linewidth=0.8, label=f"{config.rates[0]:g} tokens/s")
        axes.set(xscale="log", xlabel="users of the GPU, up to a full memory")
        axes.set_title("with histories" if history else "without histories")
        axes.set_ylabel("tokens/s of a user")
    axes.set_ylim(bottom=0)
    return styles.finish(figure, TITLE, OURS.replace("_", " "))


def main() -> int:
    return harness.run("capacity", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
