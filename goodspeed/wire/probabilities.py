"""One-byte codes of probabilities: code c stands for 2^(-c/16), from 1 at 0 to 2^-15.9 at 255."""

from collections.abc import Iterable
from math import log2

STEPS = 16
"""Codes per halving: neighbouring codes differ by 4 %, far less than the error of any estimate."""

LEAST = 255
"""Code of the lowest probabilities, of 0, and of NaN."""

FLOOR = 0.03
"""Least path probability of anything drafted, by either node, however cheap tokens are: below it most are rejected."""

PROBABILITIES = tuple(2.0 ** (-code / STEPS) for code in range(LEAST + 1))
"""Probability of each code."""


def code(probability: float) -> int:
    """Returns the code nearest to a probability; LEAST for 0 and NaN."""
    return min(LEAST, round(-STEPS * log2(min(probability, 1.0)))) if probability > 0.0 else LEAST


def bound(least: int) -> float:
    """Returns the lower bound that a code stands for; 0 for LEAST, which means no bound."""
    return PROBABILITIES[least] if least < LEAST else 0.0


def encode(probabilities: Iterable[float]) -> bytes:
    """Returns one code per probability."""
    return bytes(map(code, probabilities))
