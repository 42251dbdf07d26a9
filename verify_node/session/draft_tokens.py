"""Drafted tokens that continue a session's current text, from any source, as a chain or a tree.

A draft is parsed once, on arrival, and truncated as the text grows, because rounds read drafts far more often.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from goodspeed.drafting.sources import MODEL, TRAITS, Source
from goodspeed.exact import trees
from goodspeed.exact.proposal_bytes import cut
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.messages import Draft


def first_choices(draft: Draft) -> Draft:
    """Returns a tree's chain of first choices, for a target that computes no trees; another draft as it is."""
    if draft.parents is None:
        return draft
    nodes = trees.first_choices(trees.unpack(draft.parents))
    codes = bytes(draft.probabilities[node] for node in nodes) if draft.probabilities else b""
    return replace(draft, tokens=tuple(draft.tokens[node] for node in nodes), probabilities=codes, parents=None)


class DraftTokens(NamedTuple):
    """Tokens that may continue a session's text; from a draft node, empty only if it sent an empty draft."""

    tokens: tuple[int, ...] = ()
    codes: bytes = b""  # of their claimed probabilities (`probabilities.encode`); empty: none are claimed
    source: Source = MODEL
    proposal: bytes | None = None  # ratio rule: the distributions that the tokens were sampled from
    parents: tuple[int, ...] | None = None  # index of each token's predecessor, or -1; None: a chain
    made_on: int = 0  # draft nodes only: length of the text that the draft was made for
    complete: bool = False  # draft nodes only: no more tokens come until the text grows

    @classmethod
    def read(cls, draft: Draft, text: Sequence[int], most: int = MAX_DRAFT) -> Self | None:
        """Returns the rest of a draft whose base the text has; None if the text diverged or passed its end.

        most: tokens to keep of a draft of the ratio rule, whose distributions are large. Drops a token of a tree that
        repeats a sibling, with its successors: the match rule never accepts it.
        """
        found = cls(
            draft.tokens,
            draft.probabilities,
            draft.source,
            draft.proposal,
            made_on=draft.base_len,
            complete=draft.complete,
        )
        if draft.proposal is not None:
            found = found.cut(most)
        elif draft.parents is not None:
            found = found._cut_to(*trees.distinct(draft.tokens, trees.unpack(draft.parents)))
        return found.after(text[draft.base_len :])

    @property
    def is_certain(self) -> bool:
        """True if each token is sure to be accepted."""
        return TRAITS[self.source].is_certain

    @property
    def depth(self) -> int:
        """Number of tokens on the longest path."""
        return len(self.tokens) if self.parents is None else max(trees.depths(self.parents))

    def outdates(self, draft: Draft) -> bool:
        """True if an arriving draft is older: made for less text, or sent before this one."""
        if draft.base_len != self.made_on:
            return draft.base_len < self.made_on
        return self.complete and not draft.complete

    def after(self, new: Sequence[int]) -> Self | None:
        """Returns the rest of the draft after these tokens were added to the text; None if nothing remains.

        A draft of the ratio rule is verified only once: its rest belongs to a completed draw.
        """
        if not new:
            return self
        if self.proposal is not None:
            return None
        if self.parents is None:
            if len(new) >= len(self.tokens) or tuple(new) != self.tokens[: len(new)]:
                return None
            return self._replace(tokens=self.tokens[len(new) :], codes=self.codes[len(new) :])
        at = trees.follow(self.tokens, self.parents, new)
        if at is None:
            return None
        nodes, parents = trees.below(self.parents, at)
        return self._cut_to(nodes, parents) if nodes else None

    def pick(self, nodes: Sequence[int]) -> Self:
        """Returns these nodes of a tree, ascending, each with its parent. Raises ValueError for a chain."""
        if self.parents is None:
            raise ValueError("the draft is a chain; call cut instead")
        return self._cut_to(nodes, trees.pick(self.parents, nodes)) if nodes else type(self)()

    def cut(self, length: int) -> Self:
        """Returns the first `length` tokens; in a tree, the chain of first choices if they were sent first."""
        if length >= len(self.tokens):
            return self
        if self.parents is not None:
            return self.pick(range(length))
        proposal = cut(self.proposal, length) if self.proposal is not None else None
        return self._replace(tokens=self.tokens[:length], codes=self.codes[:length], proposal=proposal)

    def _cut_to(self, nodes: Sequence[int], parents: tuple[int, ...]) -> Self:
        """Returns these nodes of a tree, ascending, with their parents among themselves."""
        is_all = len(nodes) == len(self.tokens)
        return self._replace(
            tokens=self.tokens if is_all else tuple([self.tokens[node] for node in nodes]),
            codes=self.codes if is_all or not self.codes else bytes([self.codes[node] for node in nodes]),
            parents=None if trees.is_chain(parents) else parents,
        )


NOTHING = DraftTokens()
