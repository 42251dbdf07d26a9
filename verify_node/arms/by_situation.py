"""Experiments of their own for each situation: what pays in one seldom pays in another.

With few sessions a forward pass costs the same with a few drafted tokens more, and one session's draft model has its
cores to itself; with many sessions neither is so. And where sessions take no drafts, or only some kinds, the arms that
differ are others. Knows nothing about sessions, drafts or clocks.
"""

from collections.abc import Collection

from verify_node.arms.arms import Arms, ArmsReport
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound

FEW = 8
"""With fewer sessions models draft first, and with more only where draft nodes are on other machines: on the verify
node's own, so many draft models took more of its time than they brought."""

SLACK = 1.4
"""A load is left at once when the number of sessions is beyond its bounds by this factor."""

PATIENCE_ABOVE, PATIENCE_BELOW = 24, 160
"""A load is left after so many rounds in a row above or below its bounds. Sessions that come one by one are soon in the
load of them all; where their number wavers about a bound, some stretches pass before the smaller load holds."""


class ArmsBySituation:
    """One `Arms` for each load (1 session, 2 and 3, 4 to 7, and so on) with each set of arms that differ there."""

    def __init__(self, explore: float = 0.02, *, is_shared: bool = True) -> None:
        """is_shared: the draft nodes are on the verify node's own machine."""
        self._explore = explore
        self._is_shared = is_shared
        self._by_situation: dict[tuple[int, frozenset[Arm]], Arms] = {}
        self._load = 1  # the fewest sessions of the load that holds
        self._num_beyond = 0  # rounds in a row that were beyond its bounds
        self._current = self._at(self._load, frozenset(Arm))

    @property
    def arm(self) -> Arm:
        """The arm of the next round."""
        return self._current.arm

    @property
    def load(self) -> int:
        """The fewest sessions of the load that holds; it ends where these are twice as many."""
        return self._load

    def observe(self, done: ArmRound) -> None:
        """Counts a finished round in the situation that it was made in."""
        self._current.observe(done)

    def turn_to(self, num_sessions: int, available: Collection[Arm]) -> None:
        """Says what the next round's situation is: how many sessions there are, and which arms differ for them."""
        is_within = self._load <= num_sessions < 2 * self._load
        is_near = self._load / SLACK <= num_sessions < 2 * self._load * SLACK
        self._num_beyond = 0 if is_within else self._num_beyond + 1
        patience = PATIENCE_BELOW if num_sessions < self._load else PATIENCE_ABOVE
        if not is_near or self._num_beyond >= patience:
            self._load, self._num_beyond = 1 << (num_sessions.bit_length() - 1), 0
        arms = self._at(self._load, frozenset(available))
        if arms is not self._current:
            self._current = arms
            arms.resume()

    def report(self) -> ArmsReport:
        """What was found in the situation that holds."""
        return self._current.report()

    def reports(self) -> list[tuple[int, ArmsReport]]:
        """What was found in each situation so far, with its load, by load and then by the number of arms."""
        situations = sorted(self._by_situation, key=lambda situation: (situation[0], len(situation[1])))
        return [(situation[0], self._by_situation[situation].report()) for situation in situations]

    def _at(self, load: int, available: frozenset[Arm]) -> Arms:
        situation = (load, available)
        if situation not in self._by_situation:
            first = Arm.NGRAM if self._is_shared and load >= FEW else Arm.MODEL
            self._by_situation[situation] = Arms(self._explore, available, first)
        return self._by_situation[situation]
