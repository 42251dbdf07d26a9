"""What drafts for a session that was assigned a length: the n-gram index, the draft model, or neither. No I/O.

Knows nothing about a session's states or about messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from draft_node.core.actions import Proposed, Request
from draft_node.core.drafts.ngrams import NgramDrafter
from goodspeed.exact.positions import certain
from goodspeed.ngram.drafting import Continuation

LEAST_EXPECTED = 1.0
"""n-gram tokens that are expected to be accepted, so many at least, go up alone."""

NOTHING = Continuation()


class Choice(NamedTuple):
    """A proposal of n-gram tokens, or of none."""

    proposal: Proposed
    asks_model: bool  # the draft model drafts instead; the proposal goes up only if it fails


@dataclass(slots=True)
class Drafters:
    """What may draft for one session."""

    request: Request
    has_model: bool = True  # this node has
    ngrams: NgramDrafter | None = None

    @property
    def uses_model(self) -> bool:
        return self.has_model and self.request.drafter in ("auto", "model") and self.request.max_draft > 0

    def choose(self, tokens: Sequence[int], epoch: int, round: int, length: int, least_odds: float) -> Choice:
        """Chooses what drafts `length` tokens after the text `tokens`.

        Without a model what the index says goes up at once. With one, n-gram tokens go up alone where at least
        LEAST_EXPECTED of them are expected to be accepted, since they take no time; otherwise the model drafts alone.
        """
        expected = self.ngrams.draft(tokens, length, least_odds) if self.ngrams is not None else NOTHING
        by_match = self.request.verification == "match"
        proposal = Proposed(
            self.request.session_id,
            epoch,
            round,
            expected.tokens,
            proposal=certain(expected.tokens) if expected.tokens and not by_match else None,
            odds=prod(expected.odds),
            chances=expected.odds if by_match else None,
            num_ngram=len(expected.tokens),
        )
        return Choice(proposal, asks_model=self.uses_model and expected.num_expected < LEAST_EXPECTED)
