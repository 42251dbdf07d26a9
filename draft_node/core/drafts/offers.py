"""What a session at length 0 offers: tokens that its n-gram index expects, or that its draft model drafts unasked.

The n-gram index is asked at each verdict, and its offer goes up in place of the Ack. The draft model drafts all the
time, as long as the verify node permits it and its tokens come in time; what it has drafted goes up when it is more
than what was offered. Of both, what is expected to bring more tokens is offered. No I/O; knows nothing about a
session's states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import Proposed
from draft_node.core.drafts.chain import Chain, Wanted
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.resting import Resting
from draft_node.core.drafts.tree import Tree
from goodspeed.exact import trees
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire import odds
from goodspeed.wire.fields import OfferSource
from goodspeed.wire.messages import Offer

OFFER_LENGTH = 32
"""n-gram tokens of an offer at most: the text may have grown by some when it arrives."""

MAX_SILENT = 128
"""Tokens of a text for which a draft model may be silent before that counts against it."""

ENOUGH = OFFER_LENGTH // 2
"""An offer of which so many tokens are left says enough: a new one at each verdict would mostly repeat it."""


@dataclass(slots=True)
class Offers:
    """The offers of one session. The verify node keeps the newest, and follows it as the text grows."""

    session_id: bytes
    ngrams: NgramDrafter | None = None
    chain: Chain | None = None  # None where no draft model drafts unasked
    resting: Resting = field(default_factory=Resting)  # of the draft model, which may serve other sessions too
    offers_trees: bool = False  # the verify node understands them
    permitted: int = 0  # tokens beyond the text that the draft model may offer
    _has_answered: bool = False  # the draft model, since it last rested
    _num_silent: int = 0  # tokens of the text without an answer of the draft model
    _newest: Continuation = field(default_factory=Continuation)
    _base_len: int = 0  # of the text that the newest offer follows
    _looked_at: int = -1  # length of the text that the index was asked about
    _found: Continuation = field(default_factory=Continuation)  # what it said

    def begin(self, text_len: int) -> None:
        """The session is opened, or has been assigned a length: the verify node knows no offer."""
        self._newest, self._looked_at, self._found, self.permitted = Continuation(), -1, Continuation(), 0
        if self.chain is not None:
            self.chain.begin(text_len)

    def observe(self, num_tokens: int, num_accepted: int) -> None:
        """The text has grown, by `num_accepted` tokens that the draft model had offered among others.

        It is judged from its first answer on: before, its cache may still have to catch up with a long text.
        """
        if self.chain is None or not self.permitted:
            return
        self._num_silent = 0 if self._has_answered else self._num_silent + num_tokens
        if self.resting.is_resting or self._has_answered or self._num_silent > MAX_SILENT:
            self.resting.observe(self.session_id, num_tokens, num_accepted)
        self._has_answered = self._has_answered and not self.resting.is_resting

    def answered(self) -> None:
        """The draft model has answered, in time or not."""
        self._has_answered = True

    def next(self, tokens: Sequence[int], epoch: int, least_odds: float) -> Offer | None:
        """The offer for the text `tokens`; None where nothing is expected that the newest offer leaves unsaid."""
        rest = self._rest(tokens)
        source: OfferSource = "ngram"
        best = rest if len(rest.tokens) >= ENOUGH else self._find(tokens, least_odds)
        drafted = self.chain.rest(tokens) if self.chain is not None and self.permitted else Continuation()
        if drafted.num_expected > best.num_expected:
            best, source = drafted, "model"
        if best.tokens == rest.tokens[: len(best.tokens)] or (source == "model" and _is_little_more(best, rest)):
            return None
        self._newest, self._base_len = best, len(tokens)
        tree = None
        if source == "model" and self.offers_trees and self.chain is not None:
            tree = Tree.of(best, self.chain.alternatives(tokens), least_odds)
        return self._offer(best, source, epoch, len(tokens), tree)

    def wanted(self, tokens: Sequence[int], least_odds: float) -> Wanted | None:
        """What the draft model is to draft next, with nobody waiting for it; None: nothing.

        If the text has left the chain, another one begins, and what is drafted for the old one is not taken any more.
        """
        if self.chain is None or self.resting.is_resting:
            return None
        if not self.chain.follows(tokens):
            self.chain.begin(len(tokens))
        return self.chain.ask(tokens, self.permitted, least_odds)

    def take(self, proposal: Proposed) -> bool:
        """Takes the draft model's answer; returns whether the chain has more tokens now."""
        return self.chain is not None and self.chain.extend(proposal)

    def _find(self, tokens: Sequence[int], least_odds: float) -> Continuation:
        """What the index expects; it is asked once about a text."""
        if self.ngrams is None:
            return Continuation()
        if self._looked_at != len(tokens):
            length = min(OFFER_LENGTH, self.ngrams.request.max_draft)
            self._looked_at, self._found = len(tokens), self.ngrams.draft(tokens, length, least_odds)
        return self._found

    def _rest(self, tokens: Sequence[int]) -> Continuation:
        """What the newest offer says beyond the text; nothing if the text went on otherwise."""
        num_new, newest = len(tokens) - self._base_len, self._newest
        if num_new >= len(newest.tokens):
            return Continuation()
        if newest.tokens[:num_new] != tuple(tokens[self._base_len :]):
            return Continuation()
        return Continuation(newest.tokens[num_new:], newest.odds[num_new:])

    def _offer(
        self, expected: Continuation, source: OfferSource, epoch: int, base_len: int, tree: Tree | None
    ) -> Offer:
        if tree is None:
            return Offer(self.session_id, epoch, base_len, expected.tokens, odds.encode(expected.odds), source)
        codes, parents = odds.encode(tree.odds), trees.pack(tree.parents)
        return Offer(self.session_id, epoch, base_len, tuple(tree.tokens), codes, source, parents)


def _is_little_more(chain: Continuation, offered: Continuation) -> bool:
    """Whether a chain goes on from what was offered, and is not twice as long: each message takes both nodes' time."""
    return chain.tokens[: len(offered.tokens)] == offered.tokens and len(chain.tokens) < 2 * len(offered.tokens)
