"""Users that one verify GPU carries at a rate that each of them gets: plainly, with draft models, with histories.

Simulated with latency models from datasheets, so **computed, not measured**, or with `profiles` of another GPU. The
nodes' state machines run with their defaults; plain decoding is the same world in which nobody drafts. The verify
node's own work for each session and round is added, in series with the GPU, as measured on one core. Drafts come from a
draft model on the verify node's GPU (*co-located*: its passes take time of every round, its weights and caches memory),
or from draft nodes with GPUs of their own (*remote*). It drafts a token a pass, or all tokens of a request in one
(*parallel*). Whoever drafts, the same recorded texts say what is accepted. Users write texts of all domains in turn, so
their rate is the harmonic mean of the domains'; it is also told how many users there may be if texts of every domain
shall have it. What is not in it: whatever else shares the GPU or the network.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import Any

import msgspec
import numpy as np
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.accounts import Accounts, Seen
from experiments.simulation.nodes.own_drafter import best_length
from experiments.simulation.presets import FAMILIES, H100, PARALLEL_DECAY, Family, charged, roofline
from experiments.simulation.settings import Settings, Work
from experiments.simulation.texts import proposals
from experiments.simulation.texts.recorded import RecordedTexts
from experiments.simulation.world import Unfinished, World
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel, Linear, Roofline

H100_BYTES = 80e9
MEMORY_SHARE = 0.9
"""The share of the GPU's memory for weights and caches; the rest is for activations. An assumption."""

BUDGET_EACH = 16
"""More than ever pays here: the gradient itself decides how much of the budget it spends."""

PARALLEL_TOKENS = 8
"""Longest parallel draft: of one pass at the verify node, of two at a draft node, which asks for four at once."""

PAGE_SIZE = 64
CHUNK = 2048  # of prompts, in a round
LOOK_S = 0.25  # of virtual time, from one look at the tokens to the next
LONGEST_S = 3600.0
FEW = 16  # fewer clients are watched for longer, until they have as many tokens together as so many would
UNEQUAL = 20  # texts are so much longer than what is counted, for clients that are quicker than others


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
    warm_tokens: int  # that everybody has at least before anything is counted
    counted_tokens: int  # then, on average
    seed: int
    node_s: float  # of the verify node's own work in a round, for each session
    draft_node_s: float  # more of it, where sessions have drafts
    is_charged: bool = False  # every token costs time, also where reading the weights takes longer (`presets.charged`)
    profiles: Profiles | None = None  # instead of the family's models on an H100; memory is not known then
    recordings: str = ""  # a file of recorded texts; empty: the shipped one
    stand_in: int = 2  # which of its draft models stands for the family's smaller one, the first being 0; else the last


@dataclass(frozen=True)
class Way:
    """A way of drafting for users' texts."""

    says: str
    model: str = "none"  # "own": on the verify node's GPU; "remote"
    parallel: bool = False


WAYS = {
    "plain": Way("no draft model"),
    "co_located": Way("draft model on the same GPU", "own"),
    "co_located_parallel": Way("draft model on the same GPU, drafting in parallel", "own", parallel=True),
    "remote": Way("draft models on L4s", "remote"),
    "remote_parallel": Way("draft models on L4s, drafting in parallel", "remote", parallel=True),
}
TITLE = "A GPU that drafts for itself is quickest for few users; draft models elsewhere leave its memory to its users"
OURS, RIVAL = "remote_parallel", "co_located"
HISTORY = "_with_history"
NAMES = [name + history for history in ("", HISTORY) for name in WAYS]


# -- the GPU -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """The verify node's model on its device."""

    name: str
    round_cost: CostModel
    cached_tokens: float = inf  # that fit in its memory; infinity: not known


def h100(name: str, family: Family, *, drafts: bool) -> Gpu:
    """A family's target on an H100, from datasheets. drafts: its smaller draft model is in the memory, too."""
    held = (family.target, family.drafts[0]) if drafts else (family.target,)
    free = MEMORY_SHARE * H100_BYTES - sum(model.bytes_held for model in held)
    what = f"{name} and its draft model" if drafts else name
    cached_tokens = free // sum(model.kv_bytes for model in held)
    return Gpu(f"{what} on an H100, from datasheets", family.round_cost, cached_tokens)


class Profile(msgspec.Struct):
    """Costs of a target that `goodspeed profile --json > PATH` measured."""

    model: str
    hardware: str
    engine: str
    dtype: str
    roofline: Roofline

    @classmethod
    def read(cls, path: str) -> "Profile":
        """ConfigError where that is no such file."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            what = f"{path} is no profile of this release"
            raise ConfigError(f"{what}; make one with `goodspeed profile --json > {path}`") from error


def profiled(profiles: Profiles) -> tuple[Gpu, CostModel]:
    """The GPU with its target, and the steps of a draft model on it. ConfigError if that was measured elsewhere."""
    target, draft = Profile.read(profiles.target), Profile.read(profiles.draft)
    if target.hardware != draft.hardware:
        what = f"{profiles.draft} was measured on {draft.hardware}, and {profiles.target} on {target.hardware}"
        raise ConfigError(f"{what}, but one GPU runs both; measure both models there")
    name = f"{target.model} in {target.dtype} by {target.engine} on {target.hardware}, profiled"
    return Gpu(name, target.roofline), draft.roofline


# -- users served ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Says how users are served. They write recorded texts of all domains in turn, one each."""

    config: Config
    way: Way
    gpu: Gpu
    draft_cost: CostModel  # of a draft node's step
    own_draft_cost: CostModel | None = None  # as in `Settings`; its drafts are as long as is best for so many clients
    has_history: bool = False

    @property
    def max_draft(self) -> int:
        return PARALLEL_TOKENS if self.way.parallel else BUDGET_EACH


@dataclass(frozen=True)
class Point:
    """One number of clients."""

    num_clients: int
    speeds: tuple[float, ...]  # tokens/s of a user of each domain that is there, a mean
    tokens_per_s: float  # of all
    drafted: float  # tokens of a draft
    busy: float  # share of the time in which the GPU verifies

    @property
    def slowest(self) -> float:
        return min(self.speeds)

    @property
    def in_turn(self) -> float:
        """Tokens/s of a user who writes as much of each domain."""
        return harmonic_mean(self.speeds)


def plan(name: str, config: Config) -> Plan:
    """One of the NAMES."""
    if config.family not in FAMILIES:
        raise ConfigError(f"there is no preset {config.family!r}; choose one of: {', '.join(FAMILIES)}")
    way, family = WAYS[name.removesuffix(HISTORY)], FAMILIES[config.family]
    is_own = way.model == "own"
    own: CostModel
    if config.profiles is not None:
        gpu, own = profiled(config.profiles)
    else:
        gpu, own = h100(config.family, family, drafts=is_own), roofline(family.drafts[0], H100)
        if config.is_charged:
            gpu, own = replace(gpu, round_cost=charged(family.target, H100)), charged(family.drafts[0], H100)
    draft_cost = Linear() if is_own else family.draft_costs[0]
    return Plan(config, way, gpu, draft_cost, own if is_own else None, name.endswith(HISTORY))


def serve(plan: Plan, num_clients: int, *, plain: bool = False) -> Point:
    config, accounts, longer = plan.config, Accounts(), max(1, FEW // num_clients)
    # client i's are of domain i modulo them
    model = min(config.stand_in, len(proposals.load(config.recordings).title.draft_models) - 1)
    texts = RecordedTexts([model] * num_clients, config.temperature, config.seed, config.recordings)
    world = World(config.seed, _settings(plan, num_clients, plain, texts, longer), accounts.note)
    num_kinds = min(num_clients, len(texts.names))
    warm = longer * config.warm_tokens
    while len(accounts.verdicts) < num_clients or min(map(_tokens, accounts.verdicts.values())) < warm:
        _go_on(world)
    began, verify_s, num_drafted = _newest(accounts), accounts.verify_s, accounts.num_drafted
    wanted = sum(map(_tokens, accounts.verdicts.values())) + num_clients * longer * config.counted_tokens
    while sum(map(_tokens, accounts.verdicts.values())) < wanted:
        _go_on(world)
    seconds = _newest(accounts) - began  # whole rounds: where looks began and ended would decide ratios by 1 %
    seen = {key: [each for each in verdicts if each.at > began] for key, verdicts in accounts.verdicts.items()}
    speeds = [sum(_tokens(seen[key]) for key in draft.generations) / seconds for draft in world.drafts]
    return Point(
        num_clients,
        tuple(fmean(speeds[kind::num_kinds]) for kind in range(num_kinds)),
        sum(speeds),
        (accounts.num_drafted - num_drafted) / sum(map(len, seen.values())),
        min(1.0, (accounts.verify_s - verify_s) / seconds),  # a round that was under way ends in it
    )


def _settings(plan: Plan, num_clients: int, plain: bool, texts: RecordedTexts, longer: int) -> Settings:
    config, way = plan.config, plan.way
    length = UNEQUAL * longer * (config.warm_tokens + config.counted_tokens)
    context_len = 2 * (config.context_tokens + length)
    round_trip_s = 0.0 if way.model == "own" else config.round_trip_s
    settings = Settings(
        num_clients=num_clients,
        num_sessions=1,
        num_at_once=1,
        sizes=lambda _client, _number: (config.context_tokens, length),
        stops=0.0,
        policy="fixed" if plain else "gradient",
        max_draft=0 if plain else plan.max_draft,
        self_draft=False,
        known_cost=True,
        budget=BUDGET_EACH * num_clients,
        max_round_tokens=(1 + BUDGET_EACH) * num_clients + CHUNK,
        num_pages=num_clients * (context_len // PAGE_SIZE + 1),
        page_size=PAGE_SIZE,
        context_len=context_len,
        max_sessions=num_clients,
        round_cost=plan.gpu.round_cost,
        work=Work(config.node_s, config.draft_node_s),
        own_draft_cost=plan.own_draft_cost,
        has_model=(way.model != "none" or plain,),
        ngrams=("history" if plan.has_history else "off",),
        parallel_decay=PARALLEL_DECAY if way.parallel else None,
        acceptance=texts,
        draft_cost=(plan.draft_cost,),
        latency_s=(round_trip_s / 2,),
        tick_s=1.0,
    )
    if plan.own_draft_cost is None or plain:
        return settings
    best = best_length(settings, texts.rates, num_clients, num_clients * config.context_tokens, plan.max_draft)
    return replace(settings, max_draft=best) if best else replace(settings, has_model=(False,), own_draft_cost=None)


def _newest(accounts: Accounts) -> float:
    """Time of the newest verdict."""
    return max(verdicts[-1].at for verdicts in accounts.verdicts.values())


def _tokens(verdicts: Iterable[Seen]) -> int:
    return sum(seen.num_tokens for seen in verdicts)


def _go_on(world: World) -> None:
    if world.now > LONGEST_S:
        raise Unfinished(f"users still wait for their tokens after {LONGEST_S:g} s of virtual time")
    world.settle(LOOK_S)


# -- how many users get a rate -----------------------------------------------------------------------------------------


def experiment(config: Config) -> Outcome:
    curves: dict[str, list[Point]] = {}
    for name in parts("ways", NAMES):
        chosen = plan(name, config)
        curves[name] = [serve(chosen, users, plain=name == "plain") for users in sizes(chosen.gpu, config)]
    rows = [_row(plan(name, config), name, curves[name], rate) for rate in config.rates for name in NAMES]
    return Outcome(
        rows=rows,
        curves=[{"way": name} | _flat(point) for name in NAMES for point in curves[name]],
        findings=[found for rate in config.rates for found in findings(by_way(rows, rate), rate)],
        facts=facts(rows, config.rates),
    )


def most_held(gpu: Gpu, config: Config) -> float:
    """Users whose texts fit into the GPU's memory."""
    context_tokens = config.context_tokens + config.output_tokens // 2
    return inf if gpu.cached_tokens == inf else gpu.cached_tokens // context_tokens


def sizes(gpu: Gpu, config: Config) -> list[int]:
    """Numbers of users that are tried, up to a full memory."""
    last = int(min(config.most, most_held(gpu, config)))
    doubled = [config.fewest << power for power in range(16)]
    return [number for number in doubled if number < last] + [last]


def _flat(point: Point) -> dict[str, Any]:
    told = asdict(point) | {"slowest": point.slowest}
    del told["speeds"]
    return told | {"in_turn": point.in_turn}


def _row(chosen: Plan, name: str, points: Sequence[Point], rate: float) -> dict[str, Any]:
    at, most = [point.num_clients for point in points], most_held(chosen.gpu, chosen.config)
    users, bound = carried(dict(zip(at, [point.in_turn for point in points], strict=True)), rate, most)
    users_worst, bound_worst = carried(dict(zip(at, [point.slowest for point in points], strict=True)), rate, most)
    drafted = float(np.interp(users, at, [point.drafted for point in points]))
    row = {"way": name, "rate": rate, "users": users, "bound": bound, "drafted": drafted}
    row |= {"users_worst": users_worst, "bound_worst": bound_worst}
    return row | {"formula": formula(chosen, users, drafted) if users else None}


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


def formula(chosen: Plan, users: int, drafted: float) -> float | None:
    """1 + gamma t_draft / t_verify, by which "Speculation at a Distance" (arXiv 2606.25091) has remote drafting carry
    more users than co-located at the same rate; with the rounds of that many users. None: its model drafts nothing.

    gamma t_draft is one pass where tokens are drafted in parallel.
    """
    if (draft := chosen.own_draft_cost) is None or not drafted or chosen.has_history:
        return None
    context = users * (chosen.config.context_tokens + chosen.config.output_tokens // 2)
    verify_s = chosen.gpu.round_cost.round_s(users * (1 + drafted), users, context)
    if chosen.way.parallel:
        return 1 + draft.round_s(users * (1 + drafted), users, context) / verify_s
    return 1 + drafted * draft.round_s(users, users, context) / verify_s


def by_way(rows: Sequence[Mapping[str, Any]], rate: float) -> dict[str, Mapping[str, Any]]:
    return {row["way"]: row for row in rows if row["rate"] == rate}


def over(users: int, others: int) -> float | None:
    return users / others if others else None


def findings(found: Mapping[str, Mapping[str, Any]], rate: float) -> list[Finding]:
    """Users of each way, and those with draft models elsewhere over those of the GPU alone, if it carries any."""
    told = []
    for name, row in found.items():
        says = WAYS[name.removesuffix(HISTORY)].says + (", history" if name.endswith(HISTORY) else "")
        told.append(Finding(f"users at {rate:g} tokens/s each, {says} (bound: {row['bound']})", row["users"]))
    ratio = over(found["remote"]["users"], _alone(found))
    what = f"users at {rate:g} tokens/s each, draft models on L4s over the GPU alone, which drafts where it pays"
    return told if ratio is None else [*told, Finding(what, ratio, paper=found[RIVAL]["formula"])]


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


if __name__ == "__main__":
    sys.exit(harness.run("capacity", __doc__ or "", experiment, draw, Config))
