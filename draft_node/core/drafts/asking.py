"""What the draft model is asked for one session. Every question has a number, so that a late answer is recognised.

Knows nothing about a session's states, or about which question is due.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.core.drafts.chain import Wanted
from goodspeed.wire import odds
from goodspeed.wire.messages import Verdict

DRAFTING_TIMEOUT_S = 5.0
"""A draft model that takes longer is not waited for: an empty draft goes up, and the verify node goes on alone."""


@dataclass(slots=True)
class Asking:
    """The questions of one session, numbered within its opening (`epoch`)."""

    request: Request
    epoch: int = 0
    round: int = -1  # of the last question
    tells_odds: bool = False  # the verify node understands the odds of drafted tokens
    least_odds: float = 0.0  # a drafted token is not verified where the odds up to it are lower

    def opened(self) -> None:
        """The session is opened, perhaps again."""
        self.epoch += 1
        self.turn()

    def turn(self) -> None:
        """Another question comes next: answers to those before it are of the past."""
        self.round += 1

    def verdict_came(self, verdict: Verdict) -> None:
        """The verify node says which tokens it would verify."""
        self.least_odds = odds.bound(verdict.least_odds)

    def is_answered_by(self, proposal: Proposed) -> bool:
        """Whether this answers the last question."""
        return (proposal.epoch, proposal.round) == (self.epoch, self.round)

    def draft(self, tokens: Sequence[int], length: int, *, ahead: bool = False) -> Propose:
        """Asks for up to `length` tokens after `tokens`. ahead: the last of these are not verified yet."""
        return Propose(
            self.request,
            self.epoch,
            self.round,
            tuple(tokens),
            length,
            ahead=ahead,
            least_odds=self.least_odds,
            wants_chances=self.tells_odds and length > 0,
        )

    def draft_on(self, wanted: Wanted, num_unverified: int, *, with_alternatives: bool) -> Propose:
        """Asks for more of a chain, of which the last `num_unverified` tokens are drafted; nobody waits for it."""
        return replace(
            self.draft(wanted.tokens, wanted.length),
            least_odds=wanted.least_odds,
            unasked=True,
            num_unverified=num_unverified,
            wants_alternatives=with_alternatives,
        )

    def alone(self, tokens: Sequence[int]) -> Propose:
        """Asks for the text's next token, which nobody verifies."""
        return Propose(self.request, self.epoch, self.round, tuple(tokens), 1, local=True)
