"""Cheap counters for metrics: histograms and HTTP responses."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

TIME_TO_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Histogram bounds, equal to vLLM's for the metrics of the same names, so that vLLM's dashboards fit."""

TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
ROUND_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROUND_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS = tuple(step * 10**power for power in range(6) for step in (1, 2, 5))


class Histogram:
    """Counts the observed values up to each bound, and sums them."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Iterable[float]) -> None:
        """bounds: ascending, inclusive."""
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)  # the final one: beyond all bounds

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def num_values(self) -> int:
        return sum(self._counts)

    def up_to(self) -> list[int]:
        """Returns cumulative counts: the number of values up to each bound, then of all values."""
        return list(accumulate(self._counts))


ResponseCounts: TypeAlias = Counter[tuple[str, int]]
"""HTTP responses by route, as declared such as /v1/models/{name} (`other`: no route was reached), and status."""
