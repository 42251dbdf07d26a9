"""Rounds in a row under one arm, and the pace that they had. Knows nothing about arms, sessions or clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

SETTLING_ROUNDS, SETTLING_S = 8, 0.2
"""A stretch's first rounds, which are not counted: draft nodes have to learn that they may draft, or may not, and what
they draft until then takes the machine's time."""

COUNTED_ROUNDS = 24

MAX_PASSED_OVER = 24
"""Rounds of a stretch that read prompts are passed over, up to so many: they take what the prompts take."""

CORRELATION = 2.0
"""Rounds of the same texts are alike: n of them tell as much of the gain as n / 2 independent ones."""

MAX_WEIGHT = 20.0
"""Of what is remembered of the load: about 40 changes by the factor 2."""


class ArmRound(NamedTuple):
    """A finished round, as the experiments see it.

    seconds: wall time since the last round ended, or since the first session came if there was none in between; waiting
    for drafts is in it, time in which nobody asked for anything is not. num_sessions: those that were open, whether the
    round served them or not.
    """

    worth_tokens: float  # delivered, each times its session's worth
    worth_steps: float  # one for each session that was given tokens, times its worth: what it had got without drafts
    seconds: float
    num_sessions: int
    reads_prompts: bool = False


@dataclass(frozen=True)
class StretchRate:
    """What the counted rounds of one stretch came to."""

    tokens_per_s: float  # worth-weighted
    steps_per_s: float  # the pace: of a session one step a round that it took part in, worth-weighted
    num_sessions: float  # mean
    gain_variance: float = 0.0  # of the gain's logarithm; 0 without drafts

    @property
    def gain(self) -> float:
        """Tokens per step."""
        return self.tokens_per_s / self.steps_per_s


@dataclass
class Stretch:
    """The rounds since an arm was taken up, those that settle and those that are counted."""

    num_rounds: int = 0
    num_counted: int = 0
    seconds: float = 0.0
    counted_s: float = 0.0
    num_passed_over: int = 0
    worth_tokens: float = 0.0
    worth_steps: float = 0.0
    tokens_squared: float = 0.0  # these three are sums over the counted rounds
    tokens_steps: float = 0.0
    steps_squared: float = 0.0
    num_served: int = 0  # sessions, over the counted rounds

    @property
    def is_over(self) -> bool:
        return self.num_counted >= COUNTED_ROUNDS

    def observe(self, done: ArmRound) -> None:
        """Counts a round, unless drafts of the arm before still settle or it is passed over."""
        is_settled = self.num_rounds >= SETTLING_ROUNDS and self.seconds >= SETTLING_S
        is_passed_over = is_settled and done.reads_prompts and self.num_passed_over < MAX_PASSED_OVER
        self.num_rounds += 1
        self.seconds += done.seconds
        self.num_passed_over += is_passed_over
        if not is_settled or is_passed_over:
            return
        self.num_counted += 1
        self.counted_s += done.seconds
        self.worth_tokens += done.worth_tokens
        self.worth_steps += done.worth_steps
        self.tokens_squared += done.worth_tokens**2
        self.tokens_steps += done.worth_tokens * done.worth_steps
        self.steps_squared += done.worth_steps**2
        self.num_served += done.num_sessions

    def rate(self) -> StretchRate | None:
        """What was counted; None if nothing was delivered."""
        if min(self.worth_tokens, self.worth_steps, self.counted_s) <= 0.0 or not self.num_served:
            return None
        tokens_per_s, steps_per_s = self.worth_tokens / self.counted_s, self.worth_steps / self.counted_s
        return StretchRate(tokens_per_s, steps_per_s, self.num_served / self.num_counted, self._gain_variance)

    @property
    def _gain_variance(self) -> float:
        """From how far the rounds' tokens are from the gain times their steps."""
        gain = self.worth_tokens / self.worth_steps
        squares = self.tokens_squared - 2.0 * gain * self.tokens_steps + gain**2 * self.steps_squared
        return CORRELATION * max(0.0, squares) / self.worth_tokens**2


@dataclass
class Elasticity:
    """How the pace goes with the number of sessions: the exponent, by least squares over pairs of stretches."""

    value: float
    weight: float  # sum of squared logarithms of load ratios

    def observe(self, one: StretchRate, other: StretchRate) -> None:
        load = math.log(one.num_sessions / other.num_sessions)
        rate = math.log(one.steps_per_s / other.steps_per_s)
        self.weight = min(self.weight + load * load, MAX_WEIGHT)
        self.value += load * (rate - self.value * load) / self.weight
