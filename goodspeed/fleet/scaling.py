"""How many replicas the loads of a fleet ask for. Knows nothing about how one is started or ended.

A replica is full by what it is shortest of: sessions, pages of memory or, where a limit is given, the time of a round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goodspeed.errors import ConfigError
from goodspeed.fleet.replicas import MAX_REPLICAS, Load

FULL = 0.8
"""Mean fullness above which a fleet grows. The rest is for what comes while a new replica loads its model."""

SPARE = 0.5
"""Mean fullness that the others may have after one replica has left; well below FULL, so that none comes at once."""

UP_AFTER_S, DOWN_AFTER_S = 10.0, 300.0
"""How long a fleet must be too small, or too large, without a break: models load slowly, and loads come in waves."""


@dataclass(frozen=True)
class Limits:
    """How many replicas there may be."""

    fewest: int
    most: int
    full_round_s: float | None = None  # a replica whose rounds take so long is full; None: time does not count

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most <= MAX_REPLICAS:
            raise ConfigError(
                f"a fleet of {self.fewest} to {self.most} replicas cannot be; "
                f"give numbers from 1 to {MAX_REPLICAS}, --max-replicas not below --replicas"
            )


def fullness(load: Load, limits: Limits) -> float:
    """The share of what a replica is shortest of that is in use."""
    sessions = load.num_sessions / max(1, load.max_sessions)
    pages = 1 - load.free_pages / load.num_pages if load.num_pages else 0.0
    rounds = load.round_s / limits.full_round_s if limits.full_round_s and load.num_sessions else 0.0
    return max(sessions, pages, rounds)


def wanted(loads: Sequence[Load], limits: Limits) -> int:
    """How many replicas there should be, by the loads of those that are ready and not draining. One goes at a time."""
    num, total = len(loads), sum(fullness(load, limits) for load in loads)
    if total > FULL * num:
        num = max(num + 1, math.ceil(total / FULL))
    elif total <= SPARE * (num - 1):
        num -= 1
    return min(limits.most, max(limits.fewest, num))


class Scaler:
    """Says how many replicas there should be once the loads have asked for it long enough."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._since: tuple[int, float] | None = None  # up (1) or down (-1), and since when

    def decide(self, loads: Sequence[Load], now: float) -> int:
        """Returns the number of replicas that there should be; `len(loads)` unless it is time to change."""
        num, asked = len(loads), wanted(loads, self.limits)
        direction = (asked > num) - (asked < num)
        if not direction:
            self._since = None
            return num
        if self._since is None or self._since[0] != direction:
            self._since = (direction, now)
        if now - self._since[1] < (UP_AFTER_S if direction > 0 else DOWN_AFTER_S):
            return num
        self._since = None
        return asked
