"""The offers of a session at length 0: what goes up, and what the draft model is asked for meanwhile. No I/O.

Which tokens are worth an offer is decided in `offers.py`. Knows nothing about a session's states.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from draft_node.core.actions import Action, Propose, Proposed, Send
from draft_node.core.drafts.asking import Asking
from draft_node.core.drafts.chain import Chain
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.offers import Offers
from draft_node.core.drafts.resting import Resting
from goodspeed.wire.messages import Offer, Verdict


@dataclass(slots=True)
class Unasked:
    """The offers of one session, with the questions to its draft model that they call for."""

    asking: Asking
    offers: Offers

    @classmethod
    def begin_at(
        cls,
        asking: Asking,
        capabilities: Container[str],
        ngrams: NgramDrafter | None,
        resting: Resting,
        *,
        drafts_on: bool,
    ) -> "Unasked | None":
        """What may be offered to a verify node of these capabilities; None: nothing.

        drafts_on: by a draft model. A node that drafts nothing ahead offers nothing of its model.
        """
        request = asking.request
        if "offers" not in capabilities or request.verification != "match":
            return None
        chain = Chain(request) if drafts_on and "model_offers" in capabilities else None
        if ngrams is None and chain is None:
            return None
        return cls(asking, Offers(request.session_id, ngrams, chain, resting, "trees" in capabilities))

    def begin(self, tokens: Sequence[int]) -> None:
        """The session is opened, or has been assigned a length: the verify node knows no offer."""
        self.offers.begin(len(tokens))

    def observe(self, verdict: Verdict, num_new: int) -> None:
        """A verdict was applied, and so many of its tokens were new."""
        self.offers.observe(num_new, verdict.num_accepted if verdict.source == "model" else 0)

    def answered(self) -> None:
        """The draft model has answered, in time or not."""
        self.offers.answered()

    def offer(self, verdict: Verdict, tokens: Sequence[int]) -> Offer | None:
        """What answers a verdict after which the text is `tokens`; None: there is nothing new to offer."""
        self.offers.permitted = min(verdict.may_draft, self.asking.request.max_draft)
        return self._next(tokens)

    def draft_on(self, tokens: Sequence[int]) -> list[Propose]:
        """Has the draft model go on with its chain, or with a new one if the text has left that."""
        wanted = self.offers.wanted(tokens, self.asking.least_odds)
        if wanted is None:
            return []
        self.asking.turn()
        num_unverified = len(wanted.tokens) - len(tokens)
        return [self.asking.draft_on(wanted, num_unverified, with_alternatives=self.offers.offers_trees)]

    def drafted(self, proposal: Proposed, tokens: Sequence[int]) -> list[Action]:
        """The draft model drafted more of its chain, or failed: then it is asked again after the next verdict."""
        if not self.offers.take(proposal):
            return []
        drafting, offer = self.draft_on(tokens), self._next(tokens)
        return [Send(offer), *drafting] if offer is not None else [*drafting]

    def _next(self, tokens: Sequence[int]) -> Offer | None:
        return self.offers.next(tokens, self.asking.epoch, self.asking.least_odds)
