"""The worlds of the experiment on SLOs-Serve: its scenarios' requests, what serves them, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.baselines import DecodeFirst
from experiments.simulation.open_loop.service import Service, serve
from experiments.simulation.open_loop.stages import Stage, Texts, requests
from experiments.simulation.open_loop.traffic import window
from experiments.simulation.settings import Settings
from experiments.slo.admission_policies import POLICIES
from goodspeed.fair.round_time import Linear, Roofline

A100 = Roofline((Linear(fixed_s=0.02480, token_s=6.878e-5), Linear(fixed_s=3.033e-3, token_s=7.523e-5)))
"""A round of OPT-6.7B on an A100, by the code of the paper's authors: max_k (a_k n + b_k s + c_k) without the draft
model's steps s, since drafts are made elsewhere."""

STEP = Linear(fixed_s=3.465e-3)
"""A step of OPT-125m: the b_k of the term in which drafting is not hidden behind reading the target's weights."""

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """When requests come, and what they are."""

    trace: str
    begin_s: float  # of its window
    requests_per_s: float  # a guess at the capacity
    stages: list[Stage]


@dataclass(frozen=True)
class Base:
    """Settings that all worlds share."""

    seed: int
    processes: int  # 0: one on each core
    ratio: float  # capacities are found within it
    clients: int
    texts: Texts
    budget: int
    max_round_tokens: int
    pool_tokens: int
    scenarios: dict[str, Scenario]


@dataclass(frozen=True)
class Config(Base):
    """One section of `configs/slos_serve.toml`."""

    window_s: float  # of a trace; its times are stretched or squeezed to make for the rate
    far_s: list[float]  # one way
    far_scenarios: list[str]
    far_policies: list[str]
    crowds: int  # of 10 new requests beside 200


@dataclass(frozen=True)
class Cell:
    """The setting of one capacity."""

    scenario: str
    policy: str
    latency_s: float = 0.0


def load(config: Config, cell: Cell, requests_per_s: float) -> Row:
    """The row of a policy with so many requests per second."""
    done = served(config, cell, requests_per_s)
    key = {"scenario": cell.scenario, "policy": cell.policy, "latency_ms": 1000 * cell.latency_s}
    return key | {"requests_per_s": requests_per_s} | measures(done)


def served(config: Config, cell: Cell, requests_per_s: float) -> Service:
    coming = arrivals(config, cell.scenario, requests_per_s)
    settings = world(config, cell.latency_s)
    changes = POLICIES[cell.policy]
    if changes.get("core_kind") is DecodeFirst:
        tightest_s = min(stage.tpot_ms for stage in config.scenarios[cell.scenario].stages) / 1000
        changes = changes | {"max_round_tokens": A100.tokens_in(tightest_s, 0, 0)}
    return serve(replace(settings, **changes), coming, config.seed, pool_tokens=config.pool_tokens)


def world(base: Base, latency_s: float = 0.0) -> Settings:
    """A verify node and its draft nodes, but for its policy."""
    return Settings(
        num_clients=base.clients,
        budget=base.budget,
        max_round_tokens=base.max_round_tokens,
        round_cost=A100,
        known_cost=True,
        draft_cost=(STEP,),
        latency_s=(latency_s,),
        self_draft=False,
    )


def arrivals(config: Config, name: str, requests_per_s: float) -> list[Arrival]:
    """Every request of a scenario's window, its times stretched or squeezed: so bursts are as in the trace."""
    scenario = config.scenarios[name]
    recorded = window(scenario.trace, scenario.begin_s, config.window_s)
    return squeezed(config, name, recorded, config.window_s, requests_per_s)


def squeezed(base: Base, name: str, recorded: Sequence[float], window_s: float, requests_per_s: float) -> list[Arrival]:
    """A scenario's requests at these times of a window, which are stretched or squeezed to make for the rate."""
    squeeze = len(recorded) / window_s / requests_per_s
    times = [squeeze * at_s for at_s in recorded]
    return requests(times, base.scenarios[name].stages, base.texts, _alone_s, Random(base.seed))


def _alone_s(prompt_tokens: int) -> float:
    """Seconds in which a prompt is read alone."""
    return A100.round_s(prompt_tokens, 1, 0)


def measures(done: Service) -> Row:
    promised, outcomes = done.promised, Counter(text.kept.outcome for text in done.texts)
    others = [text for text in done.texts if not text.kept.promised]
    broken = Counter(text.kept.outcome for text in promised)
    return {
        "requests": len(done.texts),
        "violations": 1.0 - done.attainment,
        "late": outcomes["late"] / len(done.texts),
        "slow": outcomes["slow"] / len(done.texts),
        "promised": len(promised) / len(done.texts),
        "promised_attained": broken["attained"] / len(promised) if promised else None,
        "promised_late": broken["late"],
        "promised_slow": broken["slow"],
        "others_attained": fmean(text.attained for text in others) if others else None,
        "goodput_tokens_s": done.goodput,
        "drafted": done.drafted,
        "accepted": done.accepted,
        "round_ms": 1000 * done.busy_s / done.num_rounds,
        "busy": done.busy_s / done.seconds,
        "preempted": done.num_preempted,
        "scheduling_ms_p99": 1000 * float(np.quantile([one.seconds for one in done.scheduling] or [0.0], 0.99)),
    }
