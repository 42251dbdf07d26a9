"""Drafted tokens of a session, whoever drafted them: after the text as it is now, as a chain or a tree.

A draft is read once, when it arrives, and cut as the text grows: rounds look at it far more often.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from goodspeed.exact import trees
from goodspeed.exact.positions import cut
from goodspeed.wire.fields import DraftSource
from goodspeed.wire.messages import Draft


class Drafted(NamedTuple):
    """Tokens that may continue a session's text; of a draft node none only where it said that it has none."""

    tokens: tuple[int, ...] = ()
    codes: bytes = b""  # of their claimed probabilities (`probabilities.encode`); empty: none are claimed
    source: DraftSource | None = None  # None where there are none
    proposal: bytes | None = None  # ratio: what the tokens were sampled from
    parents: tuple[int, ...] | None = None  # of each token the index of the one that it follows, or -1; None: a chain
    is_forced: bool = False  # by the form that the output is to keep: each is certain
    made_on: int = 0  # of a draft node's: length of the text for which it was made
    complete: bool = False  # of a draft node's: nothing more comes until the text has grown

    @classmethod
    def read(cls, draft: Draft, text: Sequence[int]) -> Self | None:
        """Returns what is left of a draft whose base the text has; None if the text has left it, or reached its end.

        A token of a tree that repeats another after the same token is dropped with what follows it: the match rule
        never accepts it.
        """
        found = cls(
            draft.tokens,
            draft.probabilities,
            draft.source,
            draft.proposal,
            made_on=draft.base_len,
            complete=draft.complete,
        )
        if draft.parents is not None:
            found = found._cut_to(*trees.distinct(draft.tokens, trees.unpack(draft.parents)))
        return found.after(text[draft.base_len :])

    @property
    def depth(self) -> int:
        """Tokens of the longest path."""
        return len(self.tokens) if self.parents is None else max(trees.depths(self.parents))

    def outdates(self, draft: Draft) -> bool:
        """True if a draft that arrives now says less than this: it is of less text, or was sent before this one."""
        if draft.base_len != self.made_on:
            return draft.base_len < self.made_on
        return self.complete and not draft.complete

    def after(self, new: Sequence[int]) -> Self | None:
        """Returns what is left when these tokens were added to the text; None for nothing.

        A draft of the ratio rule is verified once: what is left of it was part of a draw that is over.
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

    def pick(self, nodes: Sequence[int]) -> "Drafted":
        """These nodes of a tree, ascending, each with the one that it follows. ValueError for a chain."""
        if self.parents is None:
            raise ValueError("these tokens are a chain; cut it")
        return self._cut_to(nodes, trees.pick(self.parents, nodes)) if nodes else NOTHING

    def cut(self, length: int) -> "Drafted":
        """The first `length` tokens; of a tree those are the chain of first choices, if they are sent first."""
        if length >= len(self.tokens):
            return self
        if self.parents is not None:
            return self.pick(range(length))
        proposal = cut(self.proposal, length) if self.proposal is not None else None
        return self._replace(tokens=self.tokens[:length], codes=self.codes[:length], proposal=proposal)

    def _cut_to(self, nodes: Sequence[int], parents: tuple[int, ...]) -> Self:
        """These nodes of a tree, in this order, and their parents among themselves."""
        return self._replace(
            tokens=tuple([self.tokens[node] for node in nodes]),
            codes=bytes([self.codes[node] for node in nodes]) if self.codes else b"",
            parents=None if trees.is_chain(parents) else parents,
        )


NOTHING = Drafted()
