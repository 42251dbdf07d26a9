"""The worlds of the experiment on SLOs-Serve: its scenarios' requests, what serves them, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from random import Random
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.rivals import Kind
from experiments.simulation.open_loop.service import Served, Service, serve, with_draft_nodes
from experiments.simulation.open_loop.stages import Stage, Texts, requests
from experiments.simulation.open_loop.traffic import window
from experiments.simulation.settings import Settings
from experiments.slo.admission_policies import BASELINES, NO_DRAFTS, POLICIES, VLLM_SPEC, Variant, variants
from goodspeed.fair.round_time import Linear, Roofline
from goodspeed.slo.attainment import SLACK, Times

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

STEP = Linear(fixed_s=ROUND_TERMS[1][1])
"""A step of OPT-125m where it is not hidden."""

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """Requests and the times at which they come."""

    trace: str
    begins_s: list[float]  # of its windows, each with its own draw of lengths and texts, and a capacity of its own
    requests_per_s: float  # a guess at the capacity
    stages: list[Stage]
    window_s: float = 40.0  # of the trace
    drafts: bool = True  # the paper's model for it has a draft model


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

    policies: list[str]  # of ours; the baselines are always there
    crowds: int  # of 10 new requests beside 200


@dataclass(frozen=True)
class Cell:
    """The setting of one capacity."""

    scenario: str
    policy: str
    window: int = 0  # its number; added to the config's seed


def load(config: Config, cell: Cell, requests_per_s: float, variant: str = "", most_missed: float = 1.0) -> Row:
    """The row of a policy with so many requests per second. most_missed: share of texts after which a run is lost.

    The share of a lost run is that of texts missed by then, of all; it has no other figures but those of promises.
    """
    key = {"scenario": cell.scenario, "policy": cell.policy, "window": cell.window}
    key |= {"variant": variant, "requests_per_s": requests_per_s}
    if cell.policy in BASELINES:
        num_gpus, serve_with = rivals(config, cell)[variant]
        return key | measures(serve_with(arrivals(config, cell, num_gpus * requests_per_s)))
    coming = arrivals(config, cell, requests_per_s)
    done = served(config, cell, coming, most_missed * len(coming))
    if not done.num_missed:
        return key | measures(done)
    lost = {"requests": len(coming), "violations": done.num_missed / len(coming)}
    return key | dict.fromkeys(MEASURES) | lost | promises(done)


def served(config: Config, cell: Cell, coming: Sequence[Arrival], most_missed: float = inf) -> Service:
    """Returns what our nodes make of these requests."""
    changes = POLICIES[cell.policy] | ({} if config.scenarios[cell.scenario].drafts else {"max_draft": 0})
    settings = replace(world(config), **changes)
    seed = config.seed + cell.window
    return serve(settings, coming, seed, pool_tokens=config.pool_tokens, most_missed=most_missed)


def rivals(config: Config, cell: Cell) -> Mapping[str, Variant]:
    """The variants of a baseline, by name."""
    tightest_s = min(stage.tpot_ms for stage in config.scenarios[cell.scenario].stages) / 1000
    kind = Kind(a100, config.pool_tokens)
    return variants(kind, A100.tokens_in(tightest_s, 0, 0))[cell.policy]


def may_serve(scenario: Scenario, policy: str) -> bool:
    """False where the paper's model has no draft model, and the policy differs from another only by drafts."""
    return scenario.drafts or policy not in (VLLM_SPEC, NO_DRAFTS)


def world(base: Base) -> Settings:
    """A verify node and its draft nodes, but for its policy."""
    return with_draft_nodes(base.clients, base.budget, base.max_round_tokens, A100, STEP)


def arrivals(config: Config, cell: Cell, requests_per_s: float) -> list[Arrival]:
    """Every request of a scenario's window, its times stretched or squeezed: so bursts are as in the trace."""
    scenario = config.scenarios[cell.scenario]
    recorded = window(scenario.trace, scenario.begins_s[cell.window], scenario.window_s)
    return squeezed(config, cell.scenario, recorded, scenario.window_s, requests_per_s, cell.window)


def squeezed(
    base: Base, name: str, recorded: Sequence[float], window_s: float, requests_per_s: float, seed: int = 0
) -> list[Arrival]:
    """A scenario's requests at these times of a window, which are stretched or squeezed to make for the rate.

    seed: added to the config's.
    """
    squeeze = len(recorded) / window_s / requests_per_s
    times = [squeeze * at_s for at_s in recorded]
    return requests(times, base.scenarios[name].stages, base.texts, _alone_s, Random(base.seed + seed))


def _alone_s(prompt_tokens: int) -> float:
    """Seconds in which a prompt is read alone."""
    return A100.round_s(prompt_tokens, 1, 0)


def promises(done: Service) -> Row:
    """Returns how many promised texts are over, and how many of these promises were broken."""
    outcomes = Counter(text.kept.outcome for text in done.promised)
    return {
        "num_promised": outcomes.total(),
        "promised_late": outcomes["late"],
        "promised_slow": outcomes["slow"],
    }


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
        "slow_by_mean": sum(is_slow_by_mean(text) for text in done.texts) / len(done.texts),
        "goodput_tokens_s": done.goodput,
        "drafted": done.drafted,
        "accepted": done.accepted,
        "round_ms": 1000 * done.busy_s / done.num_rounds,
        "busy": done.busy_s / done.seconds,
        "preempted": done.num_preempted,
        "scheduling_ms_p99": 1000 * float(np.quantile([one.seconds for one in done.scheduling] or [0.0], 0.99)),
    }


def is_slow_by_mean(text: Served) -> bool:
    """True if the text's mean TPOT was too long, whatever its windows were."""
    kept = text.kept
    return kept.slo.tpot_s is not None and kept.tpot_s is not None and kept.tpot_s > kept.slo.tpot_s + SLACK


MEASURES = tuple(measures(Service([Served(Times(0.0).kept(), 1, 1.0)], 1.0, num_rounds=1, num_verdicts=1)))
"""The figures of a row."""
