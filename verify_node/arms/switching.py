"""Carries out what the experiments with arms say: which drafted tokens a round looks at, and whether models may draft.

`arms.py` and `by_situation.py` decide, on what finished rounds brought.
"""

from collections.abc import Sequence

from verify_node.arms.arms import ArmsReport
from verify_node.arms.by_situation import ArmsBySituation
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.select import Choice
from verify_node.session.session import Session


class Switching:
    """Tells the experiments what every round brought, and the choice of drafted tokens which arm it is."""

    def __init__(self, choice: Choice, arms: ArmsBySituation | None) -> None:
        """arms: None where nothing is tried, as under the paper's rules."""
        self._choice = choice
        self._arms = arms
        self._since = 0.0  # end of the last round, or since when somebody asks for something again

    @property
    def permits(self) -> bool:
        """Whether draft models may draft."""
        return self._arms is None or self._arms.arm is Arm.MODEL

    @property
    def report(self) -> ArmsReport | None:
        """What the experiments found; None where nothing is tried."""
        return self._arms.report() if self._arms is not None else None

    @property
    def reports(self) -> Sequence[tuple[int, ArmsReport]]:
        """What they found in each situation, with its fewest sessions; empty where nothing is tried."""
        return self._arms.reports() if self._arms is not None else ()

    @property
    def arm(self) -> Arm | None:
        """The arm of the next round; None where nothing is tried."""
        return self._arms.arm if self._arms is not None else None

    def begin(self, now: float) -> None:
        """Somebody asks for something, and nobody did before: the time until now does not count."""
        self._since = now

    def finished(
        self, moved: Sequence[Moved], sessions: Sequence[Session], now: float, *, reads_prompts: bool = False
    ) -> None:
        """A round is done; sessions: those that go on. reads_prompts: it fed more than each text's newest token.

        Tokens count with their clients' weights, and not with U'(X) as in the policy: that would fall as the better
        arm's goodput rises, until all arms look alike.
        """
        arms = self._arms
        if arms is None:
            return
        tokens = sum(len(move.taken) * move.session.client.weight for move in moved)
        steps = sum(move.session.client.weight for move in moved if move.taken)  # the end of a text is no token
        arms.observe(ArmRound(tokens, steps, now - self._since, max(1, len(sessions)), reads_prompts))
        self._since = now
        if sessions:  # else nobody knows who comes next
            arms.turn_to(len(sessions), _differing(sessions))
        self._choice.looks_at_drafts(arms.arm is not Arm.NONE)


def _differing(sessions: Sequence[Session]) -> set[Arm]:
    """The arms that differ for these sessions."""
    arms = {Arm.NONE}
    if any(session.allows_ngrams for session in sessions):
        arms.add(Arm.NGRAM)
    if any(session.uses_model for session in sessions):
        arms.add(Arm.MODEL)
    return arms
