"""When a text's acceptance rate has become stable (LAPS-SD, section 4.3). Knows nothing about time or lengths."""

from collections import deque
from collections.abc import Sequence

from goodspeed.errors import ConfigError

NUM_ROUNDS = 8
"""gamma, rounds over which the rate may hardly change; the paper states none."""

TOLERANCE = 0.05
"""delta, by how much it may change over these; the paper states none."""

WINDOW = 64
"""Drafts that the rate is taken over. A text that turns to something else is noticed after some of them."""


def stable_rate(rates: Sequence[float], num_rounds: int, tolerance: float) -> float | None:
    """A_i, the mean of the last `num_rounds` rates if they differ by less than `tolerance`; None if it is not known."""
    last = rates[-num_rounds:]
    if len(last) < num_rounds or max(last) - min(last) >= tolerance:
        return None
    return sum(last) / num_rounds


class RateHistory:
    """The acceptance rate of one text, accepted / drafted of its last drafts, as it was after each of them."""

    def __init__(self, num_kept: int = NUM_ROUNDS, window: int = WINDOW) -> None:
        """num_kept: rates that are remembered, gamma at least. window: drafts that each is taken over."""
        if num_kept < 1 or window < 1:
            raise ConfigError(f"a history of {num_kept} rates over {window} drafts is none; both must be 1 or more")
        self._drafts: deque[tuple[int, int]] = deque(maxlen=window)
        self._rates: deque[float] = deque(maxlen=num_kept)
        self._num_accepted = self._num_drafted = 0

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        """One round's draft. A round without a draft tells nothing."""
        if not num_drafted:
            return
        if len(self._drafts) == self._drafts.maxlen:
            accepted, drafted = self._drafts[0]
            self._num_accepted -= accepted
            self._num_drafted -= drafted
        self._drafts.append((num_accepted, num_drafted))
        self._num_accepted += num_accepted
        self._num_drafted += num_drafted
        self._rates.append(self._num_accepted / self._num_drafted)

    @property
    def rates(self) -> tuple[float, ...]:
        """The oldest first."""
        return tuple(self._rates)

    @property
    def num_drafted(self) -> float:
        """n, drafted tokens of a round that has a draft, on average; 0 before the first."""
        return self._num_drafted / len(self._drafts) if self._drafts else 0.0
