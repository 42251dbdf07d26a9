"""A token tree: the drafted chain, and second choices next to its uncertain tokens.

Measured with both embedded draft models at every temperature: if the first choice is wrong, the second is right in two
of five cases (`python -m experiments.benchmarks.ranks`). So the second choice's probability follows from the first's.
Nothing is drafted after a second choice until the text contains it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import MAX_DRAFT

SECOND = 0.42
"""Probability that the second choice is right if the first is wrong."""


class Tree(NamedTuple):
    """Nodes of a token tree: the chain first, then the alternatives. probabilities: of each node's acceptance, given
    its parent. parents: index of each node's parent; -1: the node follows the text."""

    tokens: list[int]
    probabilities: list[float]
    parents: list[int]

    @classmethod
    def of(cls, chain: Continuation, alternatives: Sequence[int | None], least_probability: float) -> "Tree | None":
        """Returns the tree of a chain and the alternatives to its tokens; None: no alternative is worth sending.

        least_probability: path probability below which the verify node verifies no token.
        """
        tree = cls(list(chain.tokens), list(chain.probabilities), list(range(-1, len(chain.tokens) - 1)))
        path_probability = 1.0
        for place, (probability, other) in enumerate(zip(chain.probabilities, alternatives, strict=False)):
            second = second_probability(probability)
            is_worth_it = path_probability * second >= max(least_probability, FLOOR)
            if other is not None and is_worth_it and len(tree.tokens) < MAX_DRAFT:
                tree.tokens.append(other)
                tree.probabilities.append(second)
                tree.parents.append(place - 1)
            path_probability *= probability
        return tree if len(tree.tokens) > len(chain.tokens) else None


def second_probability(first: float) -> float:
    """Returns the second choice's probability, from the first choice's."""
    return SECOND * (1.0 - first)
