"""Reads when requests came to real services, and rescales these times to another rate.

The traces are in `experiments/traces`, with where they are from and their licence.
"""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import CostModel

FOLDER = Path(__file__).parents[2] / "traces"


@cache
def recorded(trace: str) -> tuple[float, ...]:
    """Times of a trace's requests, in seconds since its first one. trace: the name of its file, without endings."""
    with gzip.open(FOLDER / f"{trace}.csv.gz", "rt", newline="") as lines:
        return tuple(float(row["at_s"]) for row in csv.DictReader(lines))


def rescaled(trace: str, requests_per_s: float, duration_s: float, begin_s: float = 0.0) -> list[float]:
    """Times of as many of a trace's requests as make for this rate, stretched to this duration.

    begin_s: seconds into the trace at which its window begins. ConfigError if the trace ends before.
    """
    times = [at_s for at_s in recorded(trace) if at_s >= begin_s]
    number = round(requests_per_s * duration_s)
    if not 0 < number < len(times):
        raise ConfigError(f"the trace {trace} has {len(times)} requests after {begin_s} s, and {number} are wanted")
    stretch = duration_s / (times[number] - times[0])
    return [(at_s - times[0]) * stretch for at_s in times[:number]]


def window(trace: str, begin_s: float, window_s: float) -> list[float]:
    """Times of a trace's requests in a window that begins so many seconds into it, since the window's beginning."""
    return [at_s - begin_s for at_s in recorded(trace) if begin_s <= at_s < begin_s + window_s]


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
