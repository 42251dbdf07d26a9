"""What is left of a draft node's newest offer: the tokens that follow the text as it is now, as a chain or a tree.

It is read once, when it arrives, and cut as the text grows: rounds look at it far more often. Knows nothing about
sessions, or about which tokens are worth verifying.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from goodspeed.exact import trees
from goodspeed.wire.fields import OfferSource
from goodspeed.wire.messages import Offer


def depth(offer: Offer) -> int:
    """Tokens of the offer's longest path."""
    return len(offer.tokens) if offer.parents is None else max(trees.depths(trees.unpack(offer.parents)))


class Offered(NamedTuple):
    """Tokens that a draft node expects after the text."""

    made_on: int  # length of the text for which it was made
    base_len: int  # length of the text that these tokens follow
    tokens: tuple[int, ...]
    codes: bytes  # of their claimed odds (`odds.encode`)
    source: OfferSource
    parents: tuple[int, ...] | None = None  # of each token the index of the one that it follows, or -1; None: a chain

    @classmethod
    def read(cls, offer: Offer, text: Sequence[int]) -> Self | None:
        """What the offer says of a text that has its base; None if the text has left it, or reached its end.

        A token of a tree that repeats another after the same token is dropped with what follows it: the match rule
        never accepts it.
        """
        parents = None if offer.parents is None else trees.unpack(offer.parents)
        found = cls(offer.base_len, offer.base_len, offer.tokens, offer.odds, offer.source)
        if parents is not None:
            found = found._cut_to(*trees.distinct(offer.tokens, parents))
        return found.after(text[offer.base_len :])

    def after(self, new: Sequence[int]) -> Self | None:
        """What is left when these tokens were added to the text; None for nothing."""
        base_len = self.base_len + len(new)
        if self.parents is None:
            if len(new) >= len(self.tokens) or tuple(new) != self.tokens[: len(new)]:
                return None
            return self._replace(base_len=base_len, tokens=self.tokens[len(new) :], codes=self.codes[len(new) :])
        at = trees.follow(self.tokens, self.parents, new)
        if at is None:
            return None
        nodes, parents = trees.below(self.parents, at)
        return self._replace(base_len=base_len)._cut_to(nodes, parents) if nodes else None

    def _cut_to(self, nodes: Sequence[int], parents: tuple[int, ...]) -> Self:
        """These nodes of a tree, in this order, and their parents among themselves."""
        return self._replace(
            tokens=tuple([self.tokens[node] for node in nodes]),
            codes=bytes([self.codes[node] for node in nodes]),
            parents=None if trees.is_chain(parents) else parents,
        )
