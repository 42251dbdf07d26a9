"""A chain with alternatives as a token tree: beside a drafted token the one that may be right where it is wrong.

Measured with both embedded draft models at every temperature: where the first choice is wrong, the second is right in
two of five cases (`python -m experiments.benchmarks.ranks`). So its probabilities follow from those of the first. What
follows an alternative is not drafted before the text has taken it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import MAX_DRAFT

SECOND = 0.42
"""Probabilities that the second choice is right where the first is wrong."""


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
        for place, (probabilities, other) in enumerate(zip(chain.probabilities, alternatives, strict=False)):
            has_room = len(tree.tokens) < MAX_DRAFT
            if (
                other is not None
                and has_room
                and path_probability * second_probability(probabilities) >= max(least_probability, FLOOR)
            ):
                tree.tokens.append(other)
                tree.probabilities.append(second_probability(probabilities))
                tree.parents.append(place - 1)
            path_probability *= probabilities
        return tree if len(tree.tokens) > len(chain.tokens) else None


def second_probability(first: float) -> float:
    """Probabilities of the second choice, from those of the first."""
    return SECOND * (1.0 - first)
