"""One session's requests to the draft model, numbered so that a late answer is recognised."""

from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.core.drafts.growing import Wanted

DRAFTING_TIMEOUT_S = 5.0
"""Longest step of the draft model; a longer one counts as failed."""


@dataclass(slots=True)
class Asking:
    """The requests of one session, numbered (`round`) within each opening (`epoch`)."""

    request: Request
    epoch: int = 0
    round: int = -1  # of the latest request
    least_probability: float = 0.0  # path probability below which the verify node verifies no token

    def opened(self) -> None:
        """Begins a new epoch when the session is opened (again)."""
        self.epoch += 1
        self.turn()

    def turn(self) -> None:
        """Begins a new round: answers to earlier requests are outdated."""
        self.round += 1

    def is_answered_by(self, proposal: Proposed) -> bool:
        """Returns whether the proposal answers the latest request."""
        return (proposal.epoch, proposal.round) == (self.epoch, self.round)

    def warm(self, tokens: Sequence[int]) -> Propose:
        """Has the draft model prefill the text without drafting."""
        return Propose(self.request, self.epoch, self.round, tuple(tokens), 0)

    def draft(self, tokens: Sequence[int], wanted: Wanted) -> Propose:
        """Asks for more of a tree after the text `tokens`."""
        self.turn()
        by_match = self.request.verification == "match"
        return Propose(
            self.request,
            self.epoch,
            self.round,
            tuple(tokens),
            wanted.length,
            least_probability=wanted.least_probability if by_match else 0.0,
            tree=wanted.tree,
            max_depth=wanted.max_depth,
            wants_alternatives=by_match,
        )
