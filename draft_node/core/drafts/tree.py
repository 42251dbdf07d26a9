"""A chain with alternatives as a token tree: beside a drafted token the one that may be right where it is wrong.

Measured with both embedded draft models at every temperature: where the first choice is wrong, the second is right in
two of five cases (`python -m experiments.benchmarks.ranks`). So its probability follows from that of the first. What
follows an alternative is not drafted before the text has taken it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import MAX_DRAFT

SECOND = 0.42
"""Probability that the second choice is right where the first is wrong."""


class Tree(NamedTuple):
    """The tokens of the chain, and then the alternatives; the probabilities of each given the one that it follows; the
    index of that one, or -1."""

    tokens: list[int]
    probabilities: list[float]
    parents: list[int]

    @classmethod
    def of(cls, chain: Continuation, alternatives: Sequence[int | None], least_probability: float) -> "Tree | None":
        """The tree of a chain and of the alternatives to its tokens; None where no alternative is worth sending.

        least_probability: path probability below which the verify node would not look at a token.
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
    """Probability of the second choice, from that of the first."""
    return SECOND * (1.0 - first)
