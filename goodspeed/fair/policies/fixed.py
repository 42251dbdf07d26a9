"""Fixed-S, the paper's plainest baseline: every client drafts C / N tokens.

Tokens beyond a client's max_length are not given to others.
"""

from collections.abc import Sequence

import numpy as np

from goodspeed.fair.policies.base import ClientState, Ints, max_lengths, within_budget
from goodspeed.fair.policies.registry import register
from goodspeed.fair.policies.tie_breaking import TieBreaker


@register("fixed")
class FixedPolicy:
    """Gives C // N tokens to each client; the remainder rotates."""

    fairness = 0.0

    def __init__(self) -> None:
        self._ties = TieBreaker()

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        self._ties.follow(clients)
        lengths: list[int] = allocate_arrays(max_lengths(clients, budget), budget, self._ties).tolist()
        return lengths


def allocate_arrays(caps: Ints, budget: int, ties: TieBreaker) -> Ints:
    """Returns draft lengths [clients]; caps: int64 [clients]."""
    if not caps.size:
        return caps
    caps = within_budget(caps, budget)
    each, remainder = divmod(budget, caps.size)
    lengths = np.minimum(caps, each)
    lengths[ties.pick(np.flatnonzero(caps > each), remainder)] += 1
    return lengths
