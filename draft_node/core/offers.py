"""What a session at length 0 offers: tokens that its n-gram index expects, sent in place of an Ack. No I/O.

Knows nothing about a session's states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.core.ngrams import NgramDrafter
from goodspeed.wire import odds
from goodspeed.wire.messages import Offer

OFFER_LENGTH = 32
"""Tokens of an offer at most: the text may have grown by some when it arrives."""

ENOUGH = OFFER_LENGTH // 2
"""An offer of which so many tokens are left says enough: a new one at each verdict would mostly repeat it."""


@dataclass(slots=True)
class Offers:
    """The offers of one session. The verify node keeps the newest, and follows it as the text grows."""

    drafter: NgramDrafter
    _tokens: tuple[int, ...] = ()  # of the newest offer
    _base_len: int = 0

    def clear(self) -> None:
        """The session is opened anew: the verify node knows no offer."""
        self._tokens = ()

    def next(self, tokens: Sequence[int], epoch: int, least_odds: float) -> Offer | None:
        """The offer for the text `tokens`; None where the index expects nothing that the newest offer leaves unsaid.

        The index is not even asked while enough is left of the newest offer.
        """
        rest = self._rest(tokens)
        if len(rest) >= ENOUGH:
            return None
        request = self.drafter.request
        expected = self.drafter.draft(tokens, min(OFFER_LENGTH, request.max_draft), least_odds)
        if expected.tokens == rest[: len(expected.tokens)]:
            return None
        self._tokens, self._base_len = expected.tokens, len(tokens)
        return Offer(request.session_id, epoch, len(tokens), expected.tokens, odds.encode(expected.odds))

    def _rest(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """What the newest offer says beyond the text; nothing if the text went on otherwise."""
        num_new = len(tokens) - self._base_len
        return self._tokens[num_new:] if self._tokens[:num_new] == tuple(tokens[self._base_len :]) else ()
