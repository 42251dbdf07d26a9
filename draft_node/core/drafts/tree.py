"""A chain with alternatives as a token tree: beside a drafted token the one that may be right where it is wrong.

Measured with both embedded draft models at every temperature: where the first choice is wrong, the second is right in
two of five cases (`python -m experiments.benchmarks.ranks`). So its odds follow from those of the first. What follows
an alternative is not drafted before the text has taken it. Knows nothing about messages or sessions.
"""

from collections.abc import Sequence
from typing import NamedTuple

from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.exact.trees import BASE
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.messages import MAX_OFFER

SECOND = 0.42
"""Odds that the second choice is right where the first is wrong."""


class Tree(NamedTuple):
    """Tokens, the odds of each given the one that it follows, and the index of that one, or -1."""

    tokens: list[int]
    odds: list[float]
    parents: list[int]

    @classmethod
    def of(cls, chain: Continuation, alternatives: Sequence[int | None], least_odds: float) -> "Tree | None":
        """The tree of a chain and of the alternatives to its tokens; None where no alternative is worth sending.

        least_odds: path odds below which the verify node would not look at a token.
        """
        tree, path_odds, above = cls([], [], []), 1.0, BASE
        for place, (token, odds) in enumerate(zip(chain.tokens, chain.odds, strict=True)):
            other = alternatives[place] if place < len(alternatives) else None
            num_left = MAX_OFFER - len(tree.tokens) - (len(chain.tokens) - place)
            is_worth = path_odds * second_odds(odds) >= max(least_odds, FLOOR)
            first = tree._add(token, odds, above)
            if other is not None and num_left > 0 and is_worth:
                tree._add(other, second_odds(odds), above)
            path_odds *= odds
            above = first
        return tree if len(tree.tokens) > len(chain.tokens) else None

    def _add(self, token: int, odds: float, parent: int) -> int:
        self.tokens.append(token)
        self.odds.append(odds)
        self.parents.append(parent)
        return len(self.tokens) - 1


def second_odds(first: float) -> float:
    """Odds of the second choice, from those of the first."""
    return SECOND * (1.0 - first)
