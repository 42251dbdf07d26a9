"""Requests in the bursts of a recorded coding service, of two tiers: when, for which text, and what comes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from experiments.benchmarks.nodes.workers import Wanted
from experiments.simulation.open_loop.traffic import rescaled
from experiments.simulation.texts.target_texts import TargetText
from goodspeed.slo.objectives import Objectives

TRACE, BEGIN_S = "azure_llm_2023_code", 1786.0
LENGTHS = (16, 48)  # of texts, in tokens
LEAD_S = 0.5
"""The first request comes so long after the draft nodes are told of all, so that everybody has read its list."""


@dataclass(frozen=True)
class Asked:
    """One request: whom it is for, what it is, and what the target alone writes."""

    node: int
    wanted: Wanted
    expected: list[int]

    @property
    def tier(self) -> str:
        return self.wanted.slo.tier if self.wanted.slo is not None else ""


def arrivals(per_second: float, duration_s: float) -> list[float]:
    """Times of the trace's requests from BEGIN_S on, as many as make for this rate, stretched to this duration."""
    return rescaled(TRACE, per_second, duration_s, BEGIN_S)


def requests(
    times: Sequence[float], texts: Sequence[TargetText], tiers: Mapping[str, Objectives], num_nodes: int, seed: int
) -> list[Asked]:
    """A request at each of the times, dealt out to the draft nodes; text, length and tier are drawn from a seed."""
    random = Random(seed)
    return [
        asked(
            number % num_nodes, random.choice(texts), random.randint(*LENGTHS), at_s, tiers[random.choice(list(tiers))]
        )
        for number, at_s in enumerate(times)
    ]


def asked(node: int, text: TargetText, length: int, at_s: float, slo: Objectives | None, **changes: Any) -> Asked:
    """One request for the first tokens of this text. changes: what else is different in `Wanted`."""
    sampling = text.sampling
    wanted = Wanted(
        list(text.prompt), length, sampling.temperature, sampling.seed, slo=slo, due_s=LEAD_S + at_s, **changes
    )
    return Asked(node, wanted, list(text.written[:length]))
