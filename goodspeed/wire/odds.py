"""Odds in one byte: 0 is certain, and each step further divides them by 2^(1/16), down to 2^-15.9 at 255."""

from collections.abc import Iterable, Sequence
from math import log2

STEPS = 16
"""Codes for each halving: neighbouring codes differ by 4 %, far less than what is known of any odds."""

LEAST = 255
"""The code of the lowest odds, and of all that are lower or are no number."""

ODDS = tuple(2.0 ** (-code / STEPS) for code in range(LEAST + 1))
"""The odds of each code."""


def code(odds: float) -> int:
    """The code nearest to odds in 0..1; LEAST for those that are 0 or no number."""
    return min(LEAST, round(-STEPS * log2(min(odds, 1.0)))) if odds > 0.0 else LEAST


def bound(least: int) -> float:
    """The odds of a code that is a lower bound; 0 for LEAST, which bounds nothing."""
    return ODDS[least] if least < LEAST else 0.0


def encode(odds: Iterable[float]) -> bytes:
    """One code for each of the odds."""
    return bytes(map(code, odds))


def decode(codes: Sequence[int]) -> list[float]:
    """The odds of each code."""
    return [ODDS[each] for each in codes]
