"""Probabilities in one byte: 0 is certain, and each step further divides them by 2^(1/16), down to 2^-15.9 at 255."""

from collections.abc import Iterable, Sequence
from math import log2

STEPS = 16
"""Codes for each halving: neighbouring codes differ by 4 %, far less than anybody knows of a probability."""

LEAST = 255
"""The code of the lowest probability, of 0, and of NaN."""

PROBABILITIES = tuple(2.0 ** (-code / STEPS) for code in range(LEAST + 1))
"""The probability of each code."""


def code(probability: float) -> int:
    """The code nearest to a probability; LEAST for 0 and NaN."""
    return min(LEAST, round(-STEPS * log2(min(probability, 1.0)))) if probability > 0.0 else LEAST


def bound(least: int) -> float:
    """The probability of a code that is a lower bound; 0 for LEAST, which bounds nothing."""
    return PROBABILITIES[least] if least < LEAST else 0.0


def encode(probabilities: Iterable[float]) -> bytes:
    """One code for each probability."""
    return bytes(map(code, probabilities))


def decode(codes: Sequence[int]) -> list[float]:
    """The probability of each code."""
    return [PROBABILITIES[each] for each in codes]
