"""Maximises accepted tokens in total, without fairness, like adaptive verification inside one server (vLLM).

Equals `gradient` without fairness: the budget goes to the C drafted tokens with the highest acceptance probability.
Clients with low acceptance rates get nothing while others can use the budget. Ties rotate. Goodput plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence

from goodspeed.fair.policies import gradient
from goodspeed.fair.policies.base import ClientState, register


@register("throughput")
class ThroughputPolicy:
    """Maximises the sum of w_i times expected tokens."""

    fairness = 0.0

    def __init__(self) -> None:
        self._gradient = gradient.GradientPolicy(self.fairness)

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        return self._gradient.allocate(clients, budget)
