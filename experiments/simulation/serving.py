"""Simulates how quickly a GPU's users get tokens, by their number: **computed, not measured**.

The nodes' state machines run with their defaults; plain decoding is the same world in which nobody drafts. What a round
costs comes from datasheets or from a saved profile, and the verify node's own work is added to it.
What is not in it: whatever else shares its GPU or its network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean, harmonic_mean

import msgspec

from experiments.simulation.accounts import Accounts, Seen
from experiments.simulation.nodes.own_drafts import best_length
from experiments.simulation.presets import FAMILIES, H100, Family, Model, roofline
from experiments.simulation.settings import NO_WORK, Settings, Work
from experiments.simulation.texts.ngrams import NgramKind
from experiments.simulation.texts.recorded import RecordedTexts
from experiments.simulation.world import Unfinished, World
from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel, Roofline

H100_BYTES = 80e9
MEMORY_SHARE = 0.9
"""The share of the GPU's memory for weights and caches; the rest is for activations. An assumption."""

BUDGET_EACH = 16
"""More than ever pays here: the gradient itself decides how much of the budget it spends."""

PAGE_SIZE = 64
CHUNK = 2048  # of prompts, in a round
LOOK_S = 0.25  # of virtual time, from one look at the tokens to the next
LONGEST_S = 3600.0
FEW = 16  # fewer clients are watched for longer, until they have as many tokens together as so many would
UNEQUAL = 20  # texts are so much longer than what is counted, for clients that are quicker than others


@dataclass(frozen=True)
class Gpu:
    """The verify node's model on its device."""

    name: str
    round_cost: CostModel
    cached_tokens: float = inf  # that fit in its memory; infinity: not known

    def sessions_that_fit(self, context_tokens: int) -> float:
        return inf if self.cached_tokens == inf else self.cached_tokens // context_tokens


def preset(name: str) -> Gpu:
    """The target of a family of `presets.FAMILIES` on an H100, from datasheets."""
    family = _family(name)
    free = MEMORY_SHARE * H100_BYTES - bytes_held(family.target)
    return Gpu(f"{name} on an H100, from datasheets", family.round_cost, free // family.target.kv_bytes)


def shared_with_draft_model(name: str) -> Gpu:
    """Returns that H100 with the family's smaller draft model in its memory, too: weights and KV cache."""
    family = _family(name)
    draft = family.drafts[0]
    free = MEMORY_SHARE * H100_BYTES - bytes_held(family.target) - bytes_held(draft)
    cached_tokens = free // (family.target.kv_bytes + draft.kv_bytes)
    return Gpu(f"{name} and its draft model on an H100, from datasheets", family.round_cost, cached_tokens)


def own_draft(name: str) -> CostModel:
    """A step of that family's smaller draft model on the verify node's H100."""
    return roofline(_family(name).drafts[0], H100)


def preset_draft(name: str) -> CostModel:
    """A step of that family's smaller draft model on an L4."""
    return _family(name).draft_costs[0]


class _Profile(msgspec.Struct):
    model: str
    hardware: str
    engine: str
    dtype: str
    roofline: Roofline


def profiled(path: str) -> Gpu:
    """The GPU that `goodspeed profile --json > PATH` measured. ConfigError where that is no such file."""
    profile = _read(path)
    what = f"{profile.model} in {profile.dtype} by {profile.engine}"
    return Gpu(f"{what} on {profile.hardware}, profiled", profile.roofline)


def profiled_together(target: str, draft: str) -> tuple[Gpu, CostModel]:
    """The same for a target, and the steps of a draft model on its GPU. ConfigError if that was measured elsewhere."""
    hardware, other = _read(target).hardware, _read(draft).hardware
    if hardware != other:
        what = f"{draft} was measured on {other}, and {target} on {hardware}"
        raise ConfigError(f"{what}, but one GPU runs both; measure both models there")
    return profiled(target), _read(draft).roofline


def _read(path: str) -> _Profile:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Profile)
    except (OSError, msgspec.MsgspecError) as error:
        what = f"{path} is no profile of this release"
        raise ConfigError(f"{what}; make one with `goodspeed profile --json > {path}`") from error


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise ConfigError(f"there is no preset {name!r}; choose one of: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def bytes_held(model: Model) -> float:
    """Returns the bytes of the weights in the GPU's memory."""
    return model.layer_weights * model.layer_bits / 8 + 2 * model.table_weights * (1 if model.tied else 2)


@dataclass(frozen=True)
class Plan:
    """Clients and texts to be served. Clients write recorded texts of all domains in turn, one each."""

    gpu: Gpu
    draft_cost: CostModel  # of a draft node's step
    round_trip_s: float
    context_tokens: int  # of each text when it begins
    warm_tokens: int  # that everybody has at least before anything is counted
    counted_tokens: int  # then, on average
    temperature: float  # of the recorded texts
    work: Work = NO_WORK
    has_model: bool = True
    ngrams: NgramKind = "off"
    own_draft_cost: CostModel | None = None  # as in `Settings`; its drafts are as long as is best for so many clients
    parallel_decay: float | None = None  # as in `Settings`
    max_draft: int = BUDGET_EACH
    recordings: str = ""  # the file of the texts; empty: the shipped one
    stand_in: int = 0  # whose agreement is replayed, by `Recordings.stand_in`


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


def serve(plan: Plan, num_clients: int, *, plain: bool = False, seed: int = 0) -> Point:
    accounts, longer = Accounts(), max(1, FEW // num_clients)
    # client i's are of domain i modulo them
    texts = RecordedTexts([plan.stand_in] * num_clients, plan.temperature, seed, plan.recordings)
    world = World(seed, _settings(plan, num_clients, plain, texts, longer), accounts.note)
    num_kinds = min(num_clients, len(texts.names))
    warm = longer * plan.warm_tokens
    while len(accounts.verdicts) < num_clients or min(map(_tokens, accounts.verdicts.values())) < warm:
        _go_on(world)
    began, verify_s, num_drafted = world.now, accounts.verify_s, accounts.num_drafted
    wanted = sum(map(_tokens, accounts.verdicts.values())) + num_clients * longer * plan.counted_tokens
    while sum(map(_tokens, accounts.verdicts.values())) < wanted:
        _go_on(world)
    seconds = world.now - began
    seen = {key: [each for each in verdicts if each.at > began] for key, verdicts in accounts.verdicts.items()}
    speeds = [sum(_tokens(seen[key]) for key in draft.generations) / seconds for draft in world.drafts]
    return Point(
        num_clients,
        tuple(fmean(speeds[kind::num_kinds]) for kind in range(num_kinds)),
        sum(speeds),
        (accounts.num_drafted - num_drafted) / sum(map(len, seen.values())),
        min(1.0, (accounts.verify_s - verify_s) / seconds),  # a round that was under way ends in it
    )


def curve(plan: Plan, sizes: Iterable[int], *, plain: bool = False, seed: int = 0) -> list[Point]:
    return [serve(plan, num_clients, plain=plain, seed=seed) for num_clients in sizes]


def _settings(plan: Plan, num_clients: int, plain: bool, texts: RecordedTexts, longer: int) -> Settings:
    length = UNEQUAL * longer * (plan.warm_tokens + plan.counted_tokens)
    context_len = 2 * (plan.context_tokens + length)
    settings = Settings(
        num_clients=num_clients,
        num_sessions=1,
        num_at_once=1,
        sizes=lambda _client, _number: (plan.context_tokens, length),
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
        work=plan.work,
        own_draft_cost=plan.own_draft_cost,
        has_model=(plan.has_model or plain,),
        ngrams=(plan.ngrams,),
        parallel_decay=plan.parallel_decay,
        acceptance=texts,
        draft_cost=(plan.draft_cost,),
        latency_s=(plan.round_trip_s / 2,),
        tick_s=1.0,
    )
    if plan.own_draft_cost is None or plain:
        return settings
    best = best_length(settings, texts.rates, num_clients, num_clients * plan.context_tokens, plan.max_draft)
    return replace(settings, max_draft=best) if best else replace(settings, has_model=(False,), own_draft_cost=None)


def _tokens(verdicts: Iterable[Seen]) -> int:
    return sum(seen.num_tokens for seen in verdicts)


def _go_on(world: World) -> None:
    if world.now > LONGEST_S:
        raise Unfinished(f"users still wait for their tokens after {LONGEST_S:g} s of virtual time")
    world.settle(LOOK_S)
