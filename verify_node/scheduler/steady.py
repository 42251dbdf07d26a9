"""How many drafted tokens every round verifies, where rounds of varying sizes take longer than their tokens.

Such an engine (`Engine.change_rows`) goes on computing a size for a while, needed or not. So a round does not decide by
its own drafts alone: the number is the one that would have brought the most worth per second in the recent rounds, and
each round verifies its best drafted tokens up to it.
"""

from collections.abc import Sequence

STEP = 1 / 16
"""Weight of the newest round."""

HELD = 16
"""Rounds after which a change of the number must have paid for itself."""


class Steady:
    """The number of drafted tokens a round."""

    def __init__(self, change_rows: float) -> None:
        self._change_rows = change_rows
        self._gains: list[float] = []  # by number of drafted tokens: their worth relative to the round's without them
        self._num_sessions, self.number = 0, 0

    def update(self, sums: Sequence[float], alone: float, num_sessions: int, seconds: Sequence[float]) -> int:
        """Learns from the drafts of the round that is being packed; returns the number.

        sums: worth of the best 0, 1, 2, ... drafted tokens. alone: of the round without them. seconds: of a round by
        number of drafted tokens, without changes of its size; as many as sums.
        """
        gains = [worth / alone for worth in sums]
        known = self._gains if len(self._gains) == len(gains) else gains
        self._gains = [old + STEP * (new - old) for old, new in zip(known, gains, strict=True)]
        rates = [(1.0 + gain) / each for gain, each in zip(self._gains, seconds, strict=True)]
        best, row_s = rates.index(max(rates)), (seconds[-1] - seconds[0]) / max(1, len(seconds) - 1)
        if num_sessions != self._num_sessions:  # its size changes in any case
            self._num_sessions, self.number = num_sessions, best
        elif (rates[best] / rates[self.number] - 1.0) * HELD * seconds[self.number] > self._change_rows * row_s:
            self.number = best
        return self.number
