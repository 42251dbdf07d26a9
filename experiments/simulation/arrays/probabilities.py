"""Agreement of drafted tokens for the array path: draws that depend on seed, client, round and place in the draft only.

So a world is the same alone and among others, and the same under every policy as far as lengths allow.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goodspeed.fair.policies.base import Floats, Ints

Bools: TypeAlias = NDArray[np.bool_]
_STEP, _MIX, _MIX_AGAIN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Agreement: TypeAlias = Callable[[int, Ints, Ints, Ints], Bools]
"""Says of every drafted token of a round, one after the other [tokens], whether it is the target's own: (number of the
round; owner, world times clients plus client [tokens]; offset, tokens of the same draft before it [tokens]; base,
tokens that are delivered already [worlds, clients])."""


class IndependentDraws:
    """Independent agreement, by the rate of each client: the paper's alpha."""

    def __init__(self, rates: ArrayLike, seeds: Sequence[int]) -> None:
        self.rates = np.array(rates, dtype=np.float64)
        clients = np.arange(1, len(self.rates) + 1, dtype=np.uint64)
        worlds = _mixed(np.array(seeds, dtype=np.uint64))[:, None]
        self._keys = _mixed(worlds + _STEP * clients).ravel()  # [worlds x clients]

    def __call__(self, number: int, owner: Ints, offset: Ints, base: Ints) -> Bools:
        round_key = _mixed(np.array([number], dtype=np.uint64))
        hashed = _mixed(self._keys[owner] ^ round_key + _STEP * offset.view(np.uint64))
        agrees: Bools = (hashed >> np.uint64(11)) * 2.0**-53 < self.probabilities(owner, offset, base)
        return agrees

    def probabilities(self, owner: Ints, offset: Ints, base: Ints) -> Floats:
        """Returns the acceptance rate of every drafted token, with a call's parameters and shapes."""
        probabilities: Floats = self.rates[owner % len(self.rates)]
        return probabilities


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatters 64 bits (the finish of splitmix64)."""
    x = (x ^ x >> np.uint64(30)) * _MIX
    x = (x ^ x >> np.uint64(27)) * _MIX_AGAIN
    mixed: NDArray[np.uint64] = x ^ x >> np.uint64(31)
    return mixed
