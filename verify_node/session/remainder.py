"""What is left of a draft node's newest draft: the tokens that follow the text as it is now, as a chain or a tree.

A draft is read once, when it arrives, and cut as the text grows: rounds look at it far more often.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from goodspeed.exact import trees
from goodspeed.wire.fields import NodeSource
from goodspeed.wire.messages import Draft


class Remainder(NamedTuple):
    """Drafted tokens after the text; none only where the draft node said that it has none."""

    made_on: int  # length of the text for which it was made
    base_len: int  # length of the text that these tokens follow
    tokens: tuple[int, ...]
    codes: bytes  # of their claimed probabilities (`probabilities.encode`); empty: not known
    source: NodeSource
    parents: tuple[int, ...] | None = None  # of each token the index of the one that it follows, or -1; None: a chain
    complete: bool = False  # nothing more comes until the text has grown
    proposal: bytes | None = None  # ratio: what the tokens were sampled from

    @classmethod
    def read(cls, draft: Draft, text: Sequence[int]) -> Self | None:
        """What the draft says of a text that has its base; None if the text has left it, or reached its end.

        A token of a tree that repeats another after the same token is dropped with what follows it: the match rule
        never accepts it.
        """
        parents = None if draft.parents is None else trees.unpack(draft.parents)
        base_len = draft.base_len
        found = cls(
            base_len, base_len, draft.tokens, draft.probabilities, draft.source, None, draft.complete, draft.proposal
        )
        if parents is not None:
            found = found._cut_to(*trees.distinct(draft.tokens, parents))
        return found.after(text[base_len:])

    @property
    def depth(self) -> int:
        """Tokens of the longest path."""
        return len(self.tokens) if self.parents is None else max(trees.depths(self.parents))

    def outdates(self, draft: Draft) -> bool:
        """Whether a draft that arrives now says less than this: it is of less text, or was sent before this one."""
        if draft.base_len != self.made_on:
            return draft.base_len < self.made_on
        return self.complete and not draft.complete

    def after(self, new: Sequence[int]) -> Self | None:
        """What is left when these tokens were added to the text; None for nothing.

        A draft of the ratio rule is verified once: what is left of it was part of a draw that is over.
        """
        if not new:
            return self
        base_len = self.base_len + len(new)
        if self.proposal is not None:
            return None
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
            codes=bytes([self.codes[node] for node in nodes]) if self.codes else b"",
            parents=None if trees.is_chain(parents) else parents,
        )
