"""Rounds in a row under one arm, and the rate that they had. Knows nothing about arms, sessions or clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

SETTLING_ROUNDS, SETTLING_S = 8, 0.2
"""A stretch's first rounds, which are not counted: drafts that are on their way were asked for under the arm before."""

COUNTED_ROUNDS = 24

MAX_WEIGHT = 20.0
"""Of what is remembered of the load: about 40 changes by the factor 2."""


@dataclass(frozen=True)
class StretchRate:
    """What one stretch delivered."""

    tokens_per_s: float  # worth-weighted
    num_sessions: float  # mean


@dataclass
class Stretch:
    """The rounds since an arm was taken up, those that settle and those that are counted."""

    num_rounds: int = 0
    num_counted: int = 0
    seconds: float = 0.0
    counted_s: float = 0.0
    worth_tokens: float = 0.0
    num_served: int = 0  # sessions, over the counted rounds

    @property
    def is_over(self) -> bool:
        return self.num_counted >= COUNTED_ROUNDS

    def observe(self, worth_tokens: float, seconds: float, num_sessions: int) -> None:
        if self.num_rounds >= SETTLING_ROUNDS and self.seconds >= SETTLING_S:
            self.num_counted += 1
            self.counted_s += seconds
            self.worth_tokens += worth_tokens
            self.num_served += num_sessions
        self.num_rounds += 1
        self.seconds += seconds

    def rate(self) -> StretchRate | None:
        """What was counted; None if nothing was delivered."""
        if self.worth_tokens <= 0.0 or self.counted_s <= 0.0 or not self.num_served:
            return None
        return StretchRate(self.worth_tokens / self.counted_s, self.num_served / self.num_counted)


@dataclass
class Elasticity:
    """How a rate goes with the number of sessions: the exponent, by least squares over pairs of stretches."""

    value: float
    weight: float  # sum of squared logarithms of load ratios

    def observe(self, one: StretchRate, other: StretchRate) -> None:
        load = math.log(one.num_sessions / other.num_sessions)
        rate = math.log(one.tokens_per_s / other.tokens_per_s)
        self.weight = min(self.weight + load * load, MAX_WEIGHT)
        self.value += load * (rate - self.value * load) / self.weight
