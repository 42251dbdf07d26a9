"""Questions to the draft model for one session. Every question has a number, so that a late answer is recognised."""

from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.core.drafts.chain import Wanted

DRAFTING_TIMEOUT_S = 5.0
"""A step of the draft model that takes longer has failed."""


@dataclass(slots=True)
class Asking:
    """The questions of one session, numbered within its opening (`epoch`)."""

    request: Request
    epoch: int = 0
    round: int = -1  # of the last question
    least_probability: float = 0.0  # a drafted token is not verified where the probabilities up to it are lower

    def opened(self) -> None:
        """The session is opened, perhaps again."""
        self.epoch += 1
        self.turn()

    def turn(self) -> None:
        """Another question comes next: answers to those before it are of the past."""
        self.round += 1

    def is_answered_by(self, proposal: Proposed) -> bool:
        """Returns whether this answers the last question."""
        return (proposal.epoch, proposal.round) == (self.epoch, self.round)

    def warm(self, tokens: Sequence[int]) -> Propose:
        """Has the draft model read the text, and draft nothing."""
        return Propose(self.request, self.epoch, self.round, tuple(tokens), 0)

    def draft(self, wanted: Wanted, num_unverified: int) -> Propose:
        """Asks for more of a chain, of which the last `num_unverified` tokens are drafted."""
        self.turn()
        by_match = self.request.verification == "match"
        return Propose(
            self.request,
            self.epoch,
            self.round,
            wanted.tokens,
            wanted.length,
            least_probability=wanted.least_probability if by_match else 0.0,
            num_unverified=num_unverified,
            wants_alternatives=by_match,
        )

    def alone(self, tokens: Sequence[int]) -> Propose:
        """Asks for the text's next token, which nobody verifies."""
        return Propose(self.request, self.epoch, self.round, tuple(tokens), 1, local=True)
