"""Drafts of clients: chains and trees of nodes, and the path probability of each node.

A drafted token is a node; its path probability is the product of the probabilities from the base to it. No node's is
higher than its parent's, so the likeliest nodes of a candidate, however many, hold their parents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from goodspeed.errors import ConfigError

BASE = -1
"""The parent of a first node: the newest token that is decided."""

OUTSIDE = "probabilities must lie within 0 and 1"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One client's draft: a chain, or a tree.

    odds: probability of each node that it is accepted given that its parent is; within 0 and 1.
    parents: of each node, the index of its parent, or -1 for the base; None for a chain.
    worth: of one token, as compared with others'.
    need: tokens that its drafts must bring before others' are chosen, as a sum of path probability.
    max_nodes: the most that may be chosen; None for no bound but the budget.
    """

    odds: Sequence[float]
    parents: Sequence[int] | None = None
    worth: float = 1.0
    need: float = 0.0
    max_nodes: int | None = None


class Ranked(NamedTuple):
    """The nodes of a tree, the likeliest first and of equals the parent, and their path probability in that order."""

    nodes: list[int]
    path_probability: list[float]


def rank(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """Ranks the nodes of a tree, whatever their order. Raises ConfigError if it is none."""
    if len(parents) != len(probabilities):
        raise ConfigError(f"a tree of {len(probabilities)} nodes has {len(parents)} parents; each node has one")
    falling: list[float] = []  # path probability
    for node, parent in enumerate(parents):
        if not BASE <= parent < node:
            return _rank_disordered(probabilities, parents)
        falling.append(probabilities[node] if parent == BASE else falling[parent] * probabilities[node])
    nodes = sorted(range(len(falling)), key=falling.__getitem__, reverse=True)  # stable: of equals the parent
    return Ranked(nodes, [falling[node] for node in nodes])


def _rank_disordered(probabilities: Sequence[float], parents: Sequence[int]) -> Ranked:
    """As `rank`, where nodes may come before their parents."""
    known = {BASE: (1.0, 0)}  # path probability and depth
    for node, parent in enumerate(parents):
        unknown = [node] if parent in known else _unknown_ancestors(node, parents, known)
        for one in reversed(unknown):
            above, depth = known[parents[one]]
            known[one] = above * probabilities[one], depth + 1
    nodes = sorted(range(len(probabilities)), key=lambda node: (-known[node][0], known[node][1]))
    return Ranked(nodes, [known[node][0] for node in nodes])


def _unknown_ancestors(node: int, parents: Sequence[int], known: dict[int, tuple[float, int]]) -> list[int]:
    """The node and those above it that are not known yet, the lowest first."""
    found: list[int] = []
    while node not in known:
        if not BASE <= parents[node] < len(parents) or len(found) == len(parents):
            raise ConfigError(f"the parents {list(parents)} are no tree: each is an index, or -1 for the base")
        found.append(node)
        node = parents[node]
    return found


def path_probability(candidate: Candidate, tree: Ranked | None = None) -> list[float]:
    """Path probability of the nodes that may be chosen, the highest first. tree: its ranks, if it is a tree."""
    found = tree.path_probability if tree is not None else list(accumulate(candidate.odds, mul))
    return found if candidate.max_nodes is None else found[: max(0, candidate.max_nodes)]
