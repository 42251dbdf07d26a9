"""Worlds with anything at all: settings drawn from a seed, as bad as they come."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import experiments.simulation.rival_orders  # noqa: F401 (registers rivals)
from experiments.simulation.settings import Faults, Settings, with_faults
from experiments.simulation.texts.claims import Claims, Trees
from experiments.simulation.texts.ngrams import NgramKind
from goodspeed.fair.policies import ClientState, Policy
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import SHORTEST_S, Objectives
from goodspeed.wire.fields import MAX_DRAFT
from verify_node.core.settings import DEFAULTS


class Phases:
    """Now nothing, now a lot, now for some only."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._left = 0
        self._share = 0.0

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        if self._left == 0:
            self._left = self._random.randint(1, 30)
            self._share = self._random.choice([0.0, 0.0, 0.3, 1.0])
        self._left -= 1
        lengths = []
        for client in clients:
            wanted = self._random.randint(1, 6) if self._random.random() < self._share else 0
            lengths.append(min(wanted, client.max_length, budget))
            budget -= lengths[-1]
        return lengths


TINY_POOL: dict[str, Any] = {"num_pages": 16, "page_size": 4, "context_len": 64}
NARROW = (2_000.0, 20_000.0)  # bytes a second
WIDE_DRAFTS = (4.0, 60.0, 250.0)  # bytes a token, as under the match rule and the ratio rule
MIN_WAYS = 10
DRAFT_COSTS = (Linear(fixed_s=0.002), Linear(fixed_s=0.002), Linear(fixed_s=0.05))


def some_settings(seed: int) -> Settings:
    """Anything at all, half of it with the daemons' own policy and rounds; seeds have nothing in common."""
    rng = random.Random(seed)
    is_default = rng.random() < 0.5
    settings = Settings(
        num_clients=rng.randint(1, 6),
        num_sessions=rng.randint(1, 12),
        num_at_once=rng.randint(1, 3),
        rounds=DEFAULTS.rounds if is_default else rng.choice(["barrier", "barrier", "continuous"]),
        policy=DEFAULTS.policy if is_default else _some_policy(rng, seed),
        budget=rng.choice([1, 5, 10, 30]),
        max_round_tokens=rng.choice([31, 40, 100]),
        max_sessions=rng.choice([2, 100, 100]),
        round_noise=rng.choice([0.0, 0.3]),
        max_draft=rng.choice([0, 3, MAX_DRAFT, MAX_DRAFT]),
        alpha=tuple(rng.random() for _ in range(4)),
        draft_cost=tuple(rng.choice(DRAFT_COSTS) for _ in range(3)),
        verification=rng.choice([("match",), ("match", "match", "ratio")]),
        latency_s=tuple(rng.choice([0.001, 0.02, 0.3]) for _ in range(3)),
        tick_s=rng.choice([0.1, 0.3]),
        through_codec=rng.random() < 0.2,
        faults=_some_faults(rng),
    )
    faults, way_s = settings.faults, max(settings.latency_s) + settings.faults.jitter_s
    if faults.restart_every_s:  # it must live long enough for a few ways there and back
        settings = with_faults(settings, restart_every_s=max(faults.restart_every_s, MIN_WAYS * way_s + faults.down_s))
    if rng.random() < 0.4:
        settings = replace(settings, **TINY_POOL)
    if rng.random() < 0.3:
        lines = tuple(rng.choice([inf, *NARROW]) for _ in range(3))
        settings = replace(settings, bytes_per_s=lines, drafted_bytes=rng.choice(WIDE_DRAFTS))
    retarget = random.Random(f"retarget {seed}").choice([0.0, 0.0, 0.5])  # its own chance: worlds stay the same
    settings = with_faults(settings, retarget=retarget)
    order = random.Random(f"order {seed}").choice(["fcfs", "fcfs", "las", "sjf", "laps"])
    settings = replace(settings, order=order)
    return _with_ngrams(_with_absences(settings, seed), seed)


def _with_absences(settings: Settings, seed: int) -> Settings:
    """Nodes that stop or stay away, and connections that end; a world in which none of it happens stays the same."""
    rng = random.Random(f"absences {seed}")
    faults = settings.faults
    least_s = 2 * MIN_WAYS * (max(settings.latency_s) + faults.jitter_s) + faults.down_s
    every = {
        "away_every_s": rng.choice([0.0, 0.0, 0.0, 30.0]),
        "stop_every_s": rng.choice([0.0, 0.0, 0.0, 10.0]),
        "leave_every_s": rng.choice([0.0, 0.0, 0.0, 5.0]),
        "drain_every_s": rng.choice([0.0, 0.0, 0.0, 10.0]),
        "break_every_s": rng.choice([0.0, 0.0, 0.0, 3.0]),
        "turn_away_every_s": rng.choice([0.0, 0.0, 0.0, 10.0]),
    }
    busy = rng.choice([0.0, 0.0, 0.0, 0.003])
    struck = {name: max(seconds, least_s) for name, seconds in every.items() if seconds}
    settings = with_faults(settings, **struck, busy=busy, connections=bool(struck or busy))
    return replace(settings, connect_timeout_s=rng.choice([inf, 1.0, 5.0]))


def _with_ngrams(settings: Settings, seed: int) -> Settings:
    """Draft nodes with n-gram indexes, some of them without a draft model, and nodes that claim and shape anything."""
    rng = random.Random(f"ngrams {seed}")
    kinds: list[NgramKind] = ["off", "index", "right", "hostile"]
    claims: list[Claims] = ["known", "known", "certain", "impossible", "random"]
    shapes: list[Trees] = ["own", "hostile"]
    if rng.random() < 0.5:
        settings = replace(
            settings,
            ngrams=tuple(rng.choice(kinds) for _ in range(3)),
            has_model=tuple(rng.random() < 0.7 for _ in range(4)),
            num_users=rng.randint(1, 2),
        )
    settings = replace(
        settings,
        claims=tuple(rng.choice(claims) for _ in range(3)),
        trees=tuple(rng.choice(shapes) for _ in range(3)),
        is_shared=rng.choice([False, True, True]),
        self_draft=rng.random() < 0.7,
    )
    return _with_slos(settings, seed)


def _with_slos(settings: Settings, seed: int) -> Settings:
    """Texts that ask for what can be kept, for what cannot, and for nothing, and verify nodes that promise it."""
    rng = random.Random(f"slos {seed}")
    kinds = (
        None,
        Objectives(0.5, 0.05),
        Objectives(ttft_s=0.2),
        Objectives(tpot_s=SHORTEST_S),
        Objectives(tpot_s=60.0),
    )
    slos = tuple(rng.choice(kinds) for _ in range(3))
    admission = rng.choice(["none", "dp", "dp", "edf"]) if settings.rounds == "continuous" else "none"
    settings = replace(settings, slos=slos, admission=admission)
    return _with_prefixes(settings, seed)


def _with_prefixes(settings: Settings, seed: int) -> Settings:
    """Verify nodes that keep pages of read text, most of them, and users who send the same more than once."""
    rng = random.Random(f"prefixes {seed}")
    repeats, prompt_len = rng.choice([0.0, 0.5, 1.0]), rng.choice([12, 24])
    prefix_cache, max_unused = rng.random() < 0.8, rng.choice([None, None, 5])
    return replace(settings, prefix_cache=prefix_cache, max_unused=max_unused, repeats=repeats, prompt_len=prompt_len)


def _some_policy(rng: random.Random, seed: int) -> str | Callable[[], Policy]:
    policies: list[str | Callable[[], Policy]] = ["gradient", "gradient", "fixed", "random", partial(Phases, seed)]
    return rng.choice(policies)


def _some_faults(rng: random.Random) -> Faults:
    target_fails = rng.random() < 0.2
    return Faults(
        lose=rng.choice([0.0, 0.0, 0.05, 0.3]),
        repeat=rng.choice([0.0, 0.1, 0.5]),
        jitter_s=rng.choice([0.0, 0.0, 0.02, 0.5, 2.0]),
        restart_every_s=rng.choice([0.0, 0.0, 2.0, 5.0, 20.0]),
        down_s=rng.choice([0.0, 0.5, 5.0]),
        cut_every_s=rng.choice([0.0, 10.0]),
        freeze_every_s=rng.choice([0.0, 10.0]),
        kill_every_s=rng.choice([0.0, 0.0, 2.0, 10.0]),
        pause_s=rng.choice([0.5, 4.0, 10.0]),
        no_draft=rng.choice([0.0, 0.2]),
        hang=rng.choice([0.0, 0.05]),
        cancel=rng.choice([0.0, 0.3]),
        clocks_s=rng.choice([0.0, 1e6]),
        drift=rng.choice([0.0, 0.05]),
        abort=_one_of(rng, target_fails, [0.0, 0.02, 0.2]),
        fail=_one_of(rng, target_fails, [0.0, 0.01]),
        bad=_one_of(rng, target_fails, [0.0, 0.2]),
    )


def _one_of(rng: random.Random, wanted: bool, values: Sequence[float]) -> float:
    value = rng.choice(values)
    return value if wanted else 0.0
