"""Carries out what the experiments with arms say: which drafted tokens a round looks at, and whether lengths are given.

`arms.py` decides, on what finished rounds brought. Knows nothing about how the tokens are chosen or shared out.
"""

from collections.abc import Iterable, Sequence

from verify_node.rounds.arms import Arms, ArmsReport
from verify_node.rounds.choice import Choice
from verify_node.rounds.comparisons import Arm
from verify_node.rounds.outcomes import Moved
from verify_node.session.session import Session


class Switching:
    """Tells the experiments what every round brought, and the choice of drafted tokens which arm it is."""

    def __init__(self, choice: Choice, arms: Arms | None) -> None:
        """arms: None where nothing is tried, as under the paper's rules."""
        self._choice = choice
        self._arms = arms
        self._since = 0.0  # end of the last round, or since when somebody asks for something again
        self._is_idle = True

    @property
    def gives_lengths(self) -> bool:
        """Whether sessions may be assigned lengths."""
        return self._arms is None or self._arms.arm is Arm.MODEL

    @property
    def report(self) -> ArmsReport | None:
        """What the experiments found; None where nothing is tried."""
        return self._arms.report() if self._arms is not None else None

    def opened(self, now: float) -> None:
        """A session is opened: somebody asks for something."""
        if self._is_idle:
            self._is_idle, self._since = False, now

    def finished(self, moved: Iterable[Moved], sessions: Sequence[Session], now: float) -> None:
        """A round is done; sessions: those that go on.

        Tokens count with their clients' weights, and not with U'(X) as in the policy: that would fall as the better
        arm's goodput rises, until all arms look alike.
        """
        arms = self._arms
        if arms is None:
            return
        tokens = sum(len(move.taken) * move.session.client.weight for move in moved)
        arms.available = _available(sessions)
        arms.observe(tokens, now - self._since, max(1, len(sessions)))
        self._since, self._is_idle = now, not sessions
        self._choice.looks_at_offers(arms.arm is not Arm.NONE)


def _available(sessions: Iterable[Session]) -> list[Arm]:
    """The arms that differ for these sessions."""
    arms = [Arm.NONE, Arm.NGRAM]
    return [*arms, Arm.MODEL] if any(session.takes_drafts for session in sessions) else arms
