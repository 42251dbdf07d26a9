"""Tokens that an arm brings per step, where a step is one session's part in a round: without drafts it is one token.

A gain is known from all counted rounds under its arm, so it has little noise, and that of plain decoding has none.
Knows nothing about time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MEMORY = 80
"""A stretch's weight falls by e in so many stretches of the same arm: texts change."""

CORRELATION = 2.0
"""Rounds of the same texts are alike, so that many are worth as much as half of them that were not."""

LARGEST_STEP, LEAST_STEP = 3.0, 0.05
"""A stretch is a surprise if its logarithm is so many standard deviations away from what was known, and this far."""

SURPRISED_WEIGHT = 2.0
"""What was known weighs no more than so many stretches after a surprise, and nothing after a second one in the same
direction."""

SMALLEST = 1e-9


@dataclass
class _Sums:
    """Weighed sums over rounds."""

    tokens: float = 0.0
    steps: float = 0.0
    squares: float = 0.0  # of the differences of a round's tokens from their expectation
    rounds: float = 0.0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(
            self.tokens + other.tokens,
            self.steps + other.steps,
            self.squares + other.squares,
            self.rounds + other.rounds,
        )

    def times(self, factor: float) -> _Sums:
        return _Sums(self.tokens * factor, self.steps * factor, self.squares * factor, self.rounds * factor)

    @property
    def mean(self) -> float:
        return max(SMALLEST, self.tokens / self.steps) if self.steps else 1.0


@dataclass
class Gain:
    """The mean of tokens over steps under one arm, and how sure it is."""

    _known: _Sums = field(default_factory=_Sums)  # before this stretch
    _new: _Sums = field(default_factory=_Sums)  # in this stretch
    _surprise: float = 0.0  # of the last stretch: above what was known (1), below (-1)

    def observe(self, worth_tokens: float, worth_steps: float) -> None:
        """Takes a round: its tokens and its steps, each weighed with its session's worth."""
        self._new = self._new.plus(_Sums(worth_tokens, worth_steps, rounds=1.0))
        self._new.squares += (worth_tokens - self.mean * worth_steps) ** 2

    def end_stretch(self) -> None:
        """Ends a stretch: one that differs from what was known before makes that weigh less."""
        new, known = self._new, self._known
        if not new.rounds:
            return
        surprise = self._find_surprise()
        if surprise and surprise == self._surprise:
            known = _Sums()
        elif surprise:
            known = known.times(min(1.0, SURPRISED_WEIGHT * new.rounds / known.rounds))
        self._known, self._new = known.times(1.0 - 1.0 / MEMORY).plus(new), _Sums()
        self._surprise = surprise

    def _find_surprise(self) -> float:
        new, known = self._new, self._known
        if not known.rounds or not new.steps:
            return 0.0
        both = known.plus(new)
        deviation = math.sqrt(CORRELATION * both.squares / both.rounds * new.rounds) / (new.steps * known.mean)
        step = math.log(new.mean / known.mean)
        return math.copysign(1.0, step) if abs(step) > max(LEAST_STEP, LARGEST_STEP * deviation) else 0.0

    @property
    def mean(self) -> float:
        """Tokens per step; 1 before anything was seen."""
        return self._known.plus(self._new).mean

    @property
    def log(self) -> float:
        return math.log(self.mean)

    @property
    def variance(self) -> float:
        """Of `log`."""
        both = self._known.plus(self._new)
        return CORRELATION * both.squares / (both.steps * both.mean) ** 2 if both.steps else 0.0
