"""Experiments of their own for each load: what pays for one session seldom pays for sixteen.

With few sessions a forward pass costs the same with a few drafted tokens more, and one session's draft model has its
cores to itself; with many sessions neither is so. Knows nothing about sessions, drafts or clocks.
"""

from collections.abc import Sequence

from verify_node.arms.arms import Arms, ArmsReport
from verify_node.arms.comparisons import Arm

FEW = 4
"""With fewer sessions the model's drafts are tried first: there a drafted token costs next to nothing."""

SLACK = 1.4
"""A load is left when the number of sessions is beyond its bounds by this factor, so that none is left all the time."""


class ArmsByLoad:
    """One `Arms` for 1 session, one for 2 and 3, one for 4 to 7, and so on; the interface is that of `Arms`."""

    def __init__(self, explore: float = 0.02) -> None:
        self._explore = explore
        self._available: tuple[Arm, ...] = tuple(Arm)
        self._by_load: dict[int, Arms] = {}
        self._load = 1  # the fewest sessions of the load that holds
        self._current = self._at(1)

    @property
    def arm(self) -> Arm:
        """The arm of the next round."""
        return self._current.arm

    @property
    def load(self) -> int:
        """The fewest sessions of the load that holds; it ends where these are twice as many."""
        return self._load

    @property
    def available(self) -> tuple[Arm, ...]:
        """Arms that can be taken, in the order of effort."""
        return self._current.available

    @available.setter
    def available(self, arms: Sequence[Arm]) -> None:
        self._available = tuple(arms)
        self._current.available = self._available

    def observe(self, worth_tokens: float, seconds: float, num_sessions: int) -> None:
        """Counts a finished round (`Arms.observe`). The next one has the load of num_sessions."""
        self._current.observe(worth_tokens, seconds, num_sessions)
        if self._load / SLACK <= num_sessions < 2 * self._load * SLACK:
            return
        self._load = 1 << (num_sessions.bit_length() - 1)
        self._current = self._at(self._load)
        self._current.available = self._available
        self._current.resume()

    def report(self) -> ArmsReport:
        """What was found at the load that holds."""
        return self._current.report()

    def reports(self) -> dict[int, ArmsReport]:
        """What was found at each load so far, by its fewest sessions."""
        return {load: arms.report() for load, arms in sorted(self._by_load.items())}

    def _at(self, load: int) -> Arms:
        if load not in self._by_load:
            first = Arm.MODEL if load < FEW else Arm.NGRAM
            self._by_load[load] = Arms(self._explore, self._available, first)
        return self._by_load[load]
