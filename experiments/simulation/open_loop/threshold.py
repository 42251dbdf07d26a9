"""The highest load that is still served well enough, by bisection. Knows nothing about what is served."""

from collections.abc import Callable
from math import ceil, sqrt

STEP = 1.4
"""By so much the first loads differ; overloads take the longest to find out about."""


def highest(violations: Callable[[int], float], allowed: float, *, start: int, most: int, ratio: float) -> int:
    """The most requests of which at most a share `allowed` is violated, within a factor `ratio`; 0 if none.

    violations: the share of so many requests, from 1 to `most`; it should rise, and is asked for a few numbers only.
    start: a guess. The one that is returned was tried, and so was one at most `ratio` times as large, or one more.
    """
    held, failed, number = 0, most + 1, min(start, most)
    while failed - held > 1 and (not held or failed > ratio * held):
        if violations(number) <= allowed:
            held = number
        else:
            failed = number
        number = _next(held, failed, most)
    return held


def _next(held: int, failed: int, most: int) -> int:
    """Takes steps until both are known, and then what is between them."""
    if failed > most:
        return min(ceil(STEP * held), most)
    between = round(sqrt(held * failed)) if held else int(failed / STEP)
    return max(held + 1, min(between, failed - 1))
