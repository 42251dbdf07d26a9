"""The highest load that is still served well enough, by bisection."""

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

STEP = 1.4
"""By so much the first loads differ; overloads take the longest to find out about."""


def highest(
    violations: Callable[[int], float], allowed: float, *, start: int, most: int, ratio: float, step: float = STEP
) -> int:
    """The most requests of which at most a share `allowed` is violated, within a factor `ratio`; 0 if none.

    violations: the share of so many requests, from 1 to `most`; it should rise, and is asked for a few numbers only.
    start: a guess. step: the factor between loads until one held and one failed. The number that is returned was tried,
    and so was one at most `ratio` times as large, or one more.
    """
    held, failed, number = 0, most + 1, min(start, most)
    while failed - held > 1 and (not held or failed > ratio * held):
        if violations(number) <= allowed:
            held = number
        else:
            failed = number
        number = _next(held, failed, most, step)
    return held


class Tried:
    """Results of each load that was tried; none is tried twice."""

    def __init__(self, load: Callable[[float], dict[str, Any]], per_s: int) -> None:
        """load: returns what is made of so many requests per second, its "violations" among that. per_s: numbers are in
        this part of a request per second."""
        self._load, self._per_s = load, per_s
        self._rows: dict[int, dict[str, Any]] = {}

    def violations(self, number: int) -> float:
        """Returns the share that is violated."""
        if number not in self._rows:
            self._rows[number] = self._load(number / self._per_s)
        return float(self._rows[number]["violations"])

    def best(self, number: int) -> dict[str, Any]:
        """Returns what was made of this load, or of the lowest that was tried if it is 0."""
        return self._rows[number or min(self._rows)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All that were tried, the lowest load first."""
        return [self._rows[number] for number in sorted(self._rows)]


def _next(held: int, failed: int, most: int, step: float) -> int:
    """Takes steps until both are known, and then what is between them."""
    if failed > most:
        return min(ceil(step * held), most)
    between = round(sqrt(held * failed)) if held else int(failed / step)
    return max(held + 1, min(between, failed - 1))
