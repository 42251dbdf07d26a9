"""Tie-breaking: a fair, deterministic choice among clients with equal claims to too few tokens.

Clients are identified by their position in the arrays; `follow` says whose position it is now. A client that is passed
over is owed its share of that choice. Over many rounds equal claims therefore get equal shares, for any sets of tied
clients.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import numpy as np

from goodspeed.fair.policies.base import ClientState, Ints


class TieBreaker:
    """Tracks the share of past ties that each client is still owed; the shares sum to zero while all clients stay."""

    def __init__(self) -> None:
        self._owed = np.zeros(0)
        self._keys: list[tuple[str, int]] = []  # of each position: the client, and the number of its session

    def follow(self, clients: Sequence[ClientState]) -> None:
        """Moves what is owed to the clients' new positions; those who have left are owed nothing more."""
        counts: Counter[str] = Counter()
        keys: list[tuple[str, int]] = []
        for client in clients:
            keys.append((client.client_id, counts[client.client_id]))
            counts[client.client_id] += 1
        if keys != self._keys:
            owed = dict(zip(self._keys, self._owed.tolist(), strict=True))
            self._keys, self._owed = keys, np.array([owed.get(key, 0.0) for key in keys])

    def pick(self, tied: Ints, num: int) -> Ints:
        """Returns the `num` of the `tied` client positions (ascending) that are owed most; ties: the lower ones."""
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
        """Divides `num` tokens as evenly as `room` [clients] allows; room must sum to at least `num`."""
        level = _level(room, num)
        lengths = np.minimum(room, level)
        lengths[self.pick(np.flatnonzero(room > level), num - int(lengths.sum()))] += 1
        return lengths


def _level(room: Ints, num: int) -> int:
    """Returns the highest level to which `num` tokens can fill all clients, each up to its room (water-filling)."""
    levels = range(1, int(room.max(initial=0)) + 1)
    return bisect_right(levels, num, key=lambda level: int(np.minimum(room, level).sum()))
