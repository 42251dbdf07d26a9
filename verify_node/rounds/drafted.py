"""The drafted tokens of a session that a round could verify, whoever drafted them: a draft, an offer, or neither.

Changes nothing. Knows nothing about which of them are worth it, or about memory.
"""

from typing import NamedTuple

from goodspeed.exact.positions import cut
from goodspeed.wire import odds
from goodspeed.wire.messages import DraftSource
from verify_node.session.session import Session


class Drafted(NamedTuple):
    """Tokens that may continue a session's text, in order."""

    tokens: tuple[int, ...] = ()
    codes: bytes = b""  # of their claimed odds (`odds.encode`); empty: none are claimed
    num_ngram: int = 0  # leading tokens that an index drafted
    source: DraftSource | None = None  # None: they are a Draft
    proposal: bytes | None = None

    def cut(self, length: int) -> "Drafted":
        """The first `length` of them."""
        if length >= len(self.tokens):
            return self
        return Drafted(
            tokens=self.tokens[:length],
            codes=self.codes[:length],
            num_ngram=min(self.num_ngram, length),
            source=self.source,
            proposal=cut(self.proposal, length) if self.proposal is not None else None,
        )


NOTHING = Drafted()


def of_draft(session: Session) -> Drafted:
    """The session's draft, if one has arrived. Under match what it was drawn from is of no use."""
    draft = session.draft
    if draft is None:
        return NOTHING
    by_ratio = session.verification == "ratio"
    return Drafted(draft.tokens, draft.odds or b"", draft.num_ngram, None, draft.proposal if by_ratio else None)


def of_offer(session: Session) -> Drafted:
    """What the newest offer says of the tokens that follow the text now."""
    offer, first = session.offer, session.num_offered_before
    if offer is None or not session.allows_offers_of(offer.source):
        return NOTHING
    length = session.max_length
    tokens, codes = offer.tokens[first : first + length], offer.odds[first : first + length]
    return Drafted(tokens, codes, len(tokens) if offer.source == "ngram" else 0, offer.source)


def of_self(tokens: tuple[int, ...], claimed: tuple[float, ...]) -> Drafted:
    """What the verify node itself drafted from the session's own text."""
    return Drafted(tokens, odds.encode(claimed), len(tokens), "self") if tokens else NOTHING
