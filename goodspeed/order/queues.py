"""Priority queues by service, S_j = M^(j-1) S_1 (LAPS-SD, section 4.2). Knows nothing about who is in them.

The paper states none of K, M and S_1. These defaults are for texts of some seconds to a minute;
`experiments/laps_sd.py` has what other K do.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from goodspeed.errors import ConfigError

NUM_QUEUES = 4
"""K. With four, the last queue begins at 64 S_1, beyond most texts."""

GROWTH = 4.0
"""M. A text is moved down at most K - 1 times, after 1, 4 and 16 times the first bound."""

FIRST_S = 0.5
"""S_1, in seconds: about the first ten rounds of a text, after which little has to be computed again."""


@dataclass(frozen=True, slots=True)
class Queues:
    """K queues; the first has whoever has had the least service."""

    num_queues: int = NUM_QUEUES
    growth: float = GROWTH
    first_s: float = FIRST_S
    _bounds: list[float] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.num_queues < 1 or not self.growth > 1.0 or not self.first_s > 0.0:
            raise ConfigError(f"queues must be 1 or more, grow by more than 1 from more than 0 s on, not {self}")
        bound = self.first_s
        for _ in range(self.num_queues - 1):
            self._bounds.append(bound)
            bound *= self.growth

    def level(self, service_s: float) -> int:
        """Returns which queue this much service belongs to: 0 is the first, num_queues - 1 the last."""
        return bisect_right(self._bounds, service_s)
