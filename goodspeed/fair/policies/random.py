"""Random-S, the paper's second baseline: a random choice among all allocations within the budget."""

from collections.abc import Sequence

import numpy as np

from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import ClientState, Ints, max_lengths, within_budget
from goodspeed.fair.policies.registry import register


@register("random")
class RandomPolicy:
    """Draws (S_1, ..., S_N) uniformly among those with a sum of at most C; max_length then limits single lengths."""

    fairness = 0.0

    def __init__(self, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"the seed of the random policy is {seed!r}; it must be a whole number, 0 or more")
        self._random = np.random.default_rng(seed)

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        lengths: list[int] = allocate_arrays(max_lengths(clients, budget), budget, self._random).tolist()
        return lengths


def allocate_arrays(caps: Ints, budget: int, random: np.random.Generator) -> Ints:
    """Returns draft lengths [clients]; caps: int64 [clients]. N bars among C stars; the gaps are the lengths."""
    caps = within_budget(caps, budget)
    bars = np.sort(random.choice(budget + caps.size, size=caps.size, replace=False))
    lengths: Ints = np.diff(bars, prepend=-1) - 1
    return np.minimum(lengths, caps)
