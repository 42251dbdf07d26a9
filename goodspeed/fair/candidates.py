"""Drafts of clients: chains and trees of nodes, and the path probability of each node.

A node is a drafted token; its path probability is the product of the probabilities from the base to the node. No node
is likelier than its parent, so the n likeliest nodes of a candidate include their parents, for any n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from goodspeed.errors import ConfigError

BASE = -1
"""Parent index of a first node: the base, the newest decided token."""

OUTSIDE = "probabilities must lie within 0 and 1"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One client's draft: a chain, or a tree.

    odds: each node's probability of acceptance given that its parent is accepted; within 0 and 1.
    parents: each node's parent index, or -1 for the base; None: a chain.
    worth: of one token, relative to other candidates.
    need: expected accepted tokens that have priority over other candidates' nodes, as a sum of path probability.
    max_nodes: most nodes that may be chosen; None: no bound but the budget.
    """

    odds: Sequence[float]
    parents: Sequence[int] | None = None
    worth: float = 1.0
    need: float = 0.0
    max_nodes: int | None = None


class Ranked(NamedTuple):
    """A tree's nodes, the likeliest first (ties: parents first), and their path probability in that order."""

    nodes: list[int]
    path_probability: list[float]


def rank(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """Ranks the nodes of a tree, in any order. Raises ConfigError if the parents form no tree."""
    if len(parents) != len(probabilities):
        raise ConfigError(f"a tree of {len(probabilities)} nodes has {len(parents)} parents; each node has one")
    falling: list[float] = []  # path probability
    for node, parent in enumerate(parents):
        if not BASE <= parent < node:
            return _rank_disordered(probabilities, parents)
        falling.append(probabilities[node] if parent == BASE else falling[parent] * probabilities[node])
    nodes = sorted(range(len(falling)), key=falling.__getitem__, reverse=True)  # stable, so parents come first in ties
    return Ranked(nodes, [falling[node] for node in nodes])


def _rank_disordered(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """Ranks nodes that may come before their parents."""
    known = {BASE: (1.0, 0)}  # path probability and depth
    for node, parent in enumerate(parents):
        unknown = [node] if parent in known else _unknown_ancestors(node, parents, known)
        for one in reversed(unknown):
            above, depth = known[parents[one]]
            known[one] = above * probabilities[one], depth + 1
    nodes = sorted(range(len(probabilities)), key=lambda node: (-known[node][0], known[node][1]))
    return Ranked(nodes, [known[node][0] for node in nodes])


def _unknown_ancestors(node: int, parents: Sequence[int], known: dict[int, tuple[float, int]]) -> list[int]:
    """Returns the node and its ancestors that are not known yet, the lowest first."""
    found: list[int] = []
    while node not in known:
        if not BASE <= parents[node] < len(parents) or len(found) == len(parents):
            raise ConfigError(f"the parents {list(parents)} are not a tree: each must be an index, or -1 for the base")
        found.append(node)
        node = parents[node]
    return found


def path_probability(candidate: Candidate, tree: Ranked | None = None) -> list[float]:
    """Returns the highest path probabilities, of the nodes that may be chosen, falling. tree: its ranks, if it is a
    tree."""
    found = tree.path_probability if tree is not None else list(accumulate(candidate.odds, mul))
    return found if candidate.max_nodes is None else found[: max(0, candidate.max_nodes)]
