"""A policy for simulations of faults: its lengths come and go."""

import random
from collections.abc import Sequence

from goodspeed.fair.policies import ClientState


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
