"""How many drafted tokens every round verifies, where rounds of varying sizes take longer than their tokens.

Such an engine (`Engine.change_rows`) goes on computing a size for a while, needed or not. So a round does not decide by
its own drafts alone: the number is the one that would have brought the most worth per second in the recent rounds, and
each round verifies its best drafted tokens up to it.
"""

from collections.abc import Sequence

STEP = 1 / 16
"""Least weight of the newest round; the first rounds with a number of sessions count equally."""

HELD = 16
"""Rounds after which a change of the number must have paid for itself."""


class Steady:
    """The number of drafted tokens a round."""

    def __init__(self, change_rows: float) -> None:
        """change_rows: `Engine.change_rows`."""
        self._change_rows = change_rows
        self._gains: list[float] = []  # by number of drafted tokens: their worth relative to the round's without them
        self._num_sessions, self._num_rounds, self.number = 0, 0, 0

    def update(self, sums: Sequence[float], alone: float, num_sessions: int, seconds: Sequence[float]) -> int:
        """Learns from the drafts of the round that is being packed; returns how many it verifies.

        More than the steady number are verified where this round alone pays for two changes of its size, as with tokens
        that a constraint forces.

        sums: worth of the best 0, 1, 2, ... drafted tokens, in each round up to the same number. alone: of the round
        without them. seconds: of a round by number of drafted tokens, without changes of its size; as many as sums.
        """
        gains, is_new = [worth / alone for worth in sums], num_sessions != self._num_sessions
        self._num_rounds = 1 if is_new else self._num_rounds + 1
        step = max(STEP, 1 / self._num_rounds)
        self._gains = [old + step * (new - old) for old, new in zip(self._gains or gains, gains, strict=True)]
        change_s = self._change_rows * (seconds[-1] - seconds[0]) / max(1, len(seconds) - 1)
        rates = [(1.0 + gain) / each for gain, each in zip(self._gains, seconds, strict=True)]
        best = rates.index(max(rates))
        if is_new:  # its size mostly changes in any case
            self._num_sessions, self.number = num_sessions, best
        elif (rates[best] / rates[self.number] - 1.0) * HELD * seconds[self.number] > change_s:
            self.number = best
        once = [
            (1.0 + gain) / (each + 2 * change_s * (number > self.number))
            for number, (gain, each) in enumerate(zip(gains, seconds, strict=True))
        ]
        return once.index(max(once[self.number :]), self.number)
