"""A round's time from a table that somebody measured."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel


@dataclass(frozen=True)
class Tabled(CostModel):
    """Interpolates between measured rounds; below the first it stays, beyond the last two their line goes on."""

    num_tokens: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        rises = all((np.diff(values) > 0.0).all() for values in (self.num_tokens, self.seconds))
        if len(self.num_tokens) != len(self.seconds) or len(self.seconds) < 2 or not rises:
            raise ConfigError(f"a table needs two rounds or more, each larger and longer than the last, not {self}")

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        (before, last), (at, end) = self.num_tokens[-2:], self.seconds[-2:]
        beyond = np.maximum(0.0, num_tokens - last) * (end - at) / (last - before)
        found = np.interp(num_tokens, self.num_tokens, self.seconds) + beyond
        return found if isinstance(num_tokens, np.ndarray) else float(found)
