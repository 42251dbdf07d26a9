"""Tokens that an arm brings per step, where a step is one session's part in a round: without drafts it is one token.

Knows nothing about time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify_node.arms.stretches import StretchRate

KEPT = 0.9
"""What a stretch of the best arm weighs beside the next one: about ten are remembered."""

SPREAD_MEMORY = 40
"""Stretches over which it is learned how far their gains lie apart."""

FIRST_SPREAD, FIRST_WEIGHT = 0.04, 6
"""The variance that is believed at first, as if from so many stretches: the first ones may be alike by chance."""


@dataclass
class RecentGain:
    """The best arm's gain in its last stretches: less noisy than that of one.

    Gains of stretches lie apart for more reasons than the noise of their rounds: texts are easy or hard for a while.
    """

    _sum: float = 0.0  # of the stretches' gains, the older ones weighing less
    _weight: float = 0.0
    _squares: float = 0.0  # of these weights
    _spread: float = FIRST_SPREAD  # mean square of how far the logarithm of a stretch's gain is from what came before
    _num_seen: int = 0

    def observe(self, rate: StretchRate) -> None:
        """Takes the best arm's newest stretch."""
        if self._num_seen:
            step = math.log(rate.gain / self.mean)
            self._spread += (step * step - self._spread) / min(self._num_seen + FIRST_WEIGHT, SPREAD_MEMORY)
        self._num_seen += 1
        self._sum = KEPT * self._sum + rate.gain
        self._weight = KEPT * self._weight + 1.0
        self._squares = KEPT**2 * self._squares + 1.0

    @property
    def mean(self) -> float:
        """Tokens per step; 1 before anything was seen."""
        return self._sum / self._weight if self._weight else 1.0

    def variance_beside(self, trial: StretchRate) -> float:
        """Variance of the logarithm of a trial's gain over this one.

        A trial that drafts meets texts that are as easy or hard as those of any stretch; plain decoding brings the same
        whatever the texts are.
        """
        own = max(trial.gain_variance, self._spread) if trial.gain_variance else 0.0
        return own + (self._spread * self._squares / self._weight**2 if self._weight else 0.0)
