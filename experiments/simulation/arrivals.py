"""Requests that come when they come: an open loop, in which nobody waits for an earlier text to end. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from experiments.simulation.texts.acceptance import Acceptance
from goodspeed.slo.objectives import Objectives


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a schedule."""

    at_s: float  # since the world began
    prompt_tokens: int
    output_tokens: int
    acceptance: Acceptance  # how likely drafts of its text are accepted
    slo: Objectives | None = None


Schedule: TypeAlias = tuple[Arrival, ...]
"""The requests of one draft node's users, in the order in which they come."""


def dealt_out(arrivals: Sequence[Arrival], num_clients: int) -> tuple[Schedule, ...]:
    """Each client's schedule: they take the requests in turn."""
    return tuple(tuple(arrivals[client::num_clients]) for client in range(num_clients))
