"""Whose turn it is: a fair, deterministic choice among clients that have an equal claim to too few tokens.

Knows nothing about goodput or acceptance. A client is its position; every choice that passes a client over adds what
it was owed, so over many rounds equal claims get equal shares, whichever sets of clients happen to be tied.
"""

from __future__ import annotations

import numpy as np

from goodspeed.fair.policies.base import Ints


class Turns:
    """Remembers, per client, the share of past ties that it is still owed (they sum to zero)."""

    def __init__(self) -> None:
        self._owed = np.zeros(0)

    def pick(self, tied: Ints, num: int) -> Ints:
        """The `num` of the `tied` client positions (ascending) that are owed most; the first ones at a draw."""
        if num <= 0 or num >= tied.size:
            return tied[: max(num, 0)]
        if tied[-1] >= self._owed.size:
            self._owed = np.concatenate([self._owed, np.zeros(tied[-1] + 1 - self._owed.size)])
        owed = self._owed[tied] + num / tied.size
        chosen = np.argsort(-np.round(owed, 9), kind="stable")[:num]
        owed[chosen] -= 1.0
        self._owed[tied] = owed
        return tied[chosen]

    def share(self, room: Ints, num: int) -> Ints:
        """Divides `num` tokens as evenly as each client's `room` allows (room sums to `num` at least)."""
        level = _level(room, num)
        lengths = np.minimum(room, level)
        lengths[self.pick(np.flatnonzero(room > level), num - int(lengths.sum()))] += 1
        return lengths


def _level(room: Ints, num: int) -> int:
    """The highest level that everybody can be filled to, each up to its room, with `num` tokens."""
    low, high = 0, int(room.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(room, middle).sum()) <= num:
            low = middle
        else:
            high = middle - 1
    return low
