"""The drafts of a session that was assigned a length: one that is awaited, and one made ahead of its verdict. No I/O.

What drafts is decided in `choice.py`; what is in flight is in `in_flight.py`. Knows nothing about a session's states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.core.actions import Propose, Proposed
from draft_node.core.drafts.asking import Asking
from draft_node.core.drafts.choice import Drafters
from draft_node.core.drafts.in_flight import InFlight
from goodspeed.wire.messages import Draft


@dataclass(slots=True)
class Assigned:
    """The assigned drafts of one session."""

    asking: Asking
    drafters: Drafters
    in_flight: InFlight
    _length: int = 0  # of the draft that is awaited or in flight
    _spare: Proposed | None = None  # goes up if the draft model fails

    def warm(self, tokens: Sequence[int]) -> list[Propose]:
        """Has the draft model read the text before a length is assigned."""
        self._length = 0
        return [self.asking.draft(tokens, 0)] if self.drafters.uses_model else []

    def begin(self, length: int, tokens: Sequence[int]) -> Proposed | Propose:
        """A draft of this length is awaited: what goes up at once, or the question to the draft model."""
        self._length = length
        self.asking.turn()
        asking = self.asking
        choice = self.drafters.choose(tokens, asking.epoch, asking.round, length, asking.least_odds)
        if not choice.asks_model:
            return choice.proposal
        self._spare = choice.proposal
        return asking.draft(tokens, length)

    def or_spare(self, proposal: Proposed) -> Proposed:
        """The draft model's answer, or what stands in for it if it failed."""
        return proposal if proposal.tokens else self._spare or proposal

    def put(self, proposal: Proposed, tokens: Sequence[int]) -> Draft:
        """Makes the draft that was awaited; it is in flight from now on."""
        draft = self.in_flight.make(proposal, tokens, self._length)
        self.in_flight.put(draft, proposal.odds, self._length, proposal.num_ngram)
        return draft

    def use_ahead(self, draft: Draft, path_odds: float, length: int, tokens: Sequence[int]) -> list[Propose]:
        """The draft made ahead is the one that is awaited, to this length. Asks for the next one ahead."""
        self._length = length
        self.in_flight.put(draft, path_odds, length)
        return self.draft_ahead(tokens)

    def draft_ahead(self, tokens: Sequence[int]) -> list[Propose]:
        """Asks for the next draft, after the one that is in flight and a guess of the token that follows it."""
        length = self.in_flight.length_ahead(len(tokens))
        if not length:
            return []
        self.asking.turn()
        return [self.asking.draft((*tokens, *self.in_flight.drafted), length + 1, ahead=True)]
