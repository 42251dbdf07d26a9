"""Token trees as integers: tokens[i] is node i's token, parents[i] the index of its parent; -1: the base.

The base is the newest committed token. Parents precede their children. A node's first child is the drafter's first
choice: the child that the drafter considers most likely.
"""

from collections.abc import Sequence
from functools import lru_cache

BASE = -1
"""Parent index of a node that follows the base (a root)."""

MAX_NODES = 62
"""Most nodes of a tree that is verified: the nodes that a node sees are the bits of one integer on a GPU."""

SHAPES = 1024
"""Tree shapes whose alternatives are cached: drafters make few shapes, and each is used often."""


def depths(parents: Sequence[int]) -> list[int]:
    """Returns each node's depth: 1 for a root."""
    found = [0]  # of the base, then of each node
    for parent in parents:
        found.append(found[parent + 1] + 1)
    return found[1:]


def first_choices(parents: Sequence[int]) -> list[int]:
    """Returns the path from the base that takes the first choice at every node."""
    chain, at = [], BASE
    for node, parent in enumerate(parents):
        if parent == at:
            chain.append(node)
            at = node
    return chain


@lru_cache(maxsize=SHAPES)
def alternatives(parents: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Returns (node, first choice with the same parent) for each node that is not a first choice, in order."""
    first: dict[int, int] = {}
    both = ((node, first.setdefault(parent, node)) for node, parent in enumerate(parents))
    return tuple((node, chosen) for node, chosen in both if node != chosen)


def paths(tokens: Sequence[int], parents: Sequence[int] | None) -> list[tuple[int, ...]]:
    """Returns each node's path of tokens from its root, the node included. parents: None: a chain."""
    if parents is None:
        return [tuple(tokens[: node + 1]) for node in range(len(tokens))]
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        found.append((*(found[parent] if parent != BASE else ()), token))
    return found


def accepted(drawn: Sequence[int], tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Returns the path of nodes that the match rule accepts, from a root down; see `rejection.match_tree`.

    drawn [num_nodes + 1]: the target's draw after the base, then after each node.
    """
    children: dict[tuple[int, int], int] = {}  # by parent and token
    for node in reversed(range(len(tokens))):
        children[parents[node], tokens[node]] = node
    path: list[int] = []
    at = children.get((BASE, drawn[0]))
    while at is not None:
        path.append(at)
        at = children.get((at, drawn[at + 1]))
    return path


def follow(tokens: Sequence[int], parents: Sequence[int], text: Sequence[int]) -> int | None:
    """Returns the node that is reached by a text after the base; -1: the text is empty; None: not in the tree."""
    at = BASE
    for token in text:
        for node in range(at + 1, len(tokens)):
            if parents[node] == at and tokens[node] == token:
                at = node
                break
        else:
            return None
    return at


def below(parents: Sequence[int], at: int) -> tuple[list[int], tuple[int, ...]]:
    """Returns the descendants of a node, in order, and their parents as indices among these; base: all nodes."""
    places = {at: BASE}
    nodes: list[int] = []
    found: list[int] = []
    for node in range(at + 1, len(parents)):
        place = places.get(parents[node])
        if place is not None:
            places[node] = len(nodes)
            nodes.append(node)
            found.append(place)
    return nodes, tuple(found)


def distinct(tokens: Sequence[int], parents: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Returns the nodes without duplicate siblings and their descendants, and the parents as indices among these."""
    if len({*zip(tokens, parents, strict=True)}) == len(tokens):  # as nearly always
        return list(range(len(tokens))), tuple(parents)
    places = {BASE: BASE}
    nodes: list[int] = []
    found: list[int] = []
    seen: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        place = places.get(parent)
        if place is not None and (place, token) not in seen:
            seen.add((place, token))
            places[node] = len(nodes)
            nodes.append(node)
            found.append(place)
    return nodes, tuple(found)


def pick(parents: Sequence[int], nodes: Sequence[int]) -> tuple[int, ...]:
    """Returns the parents of these nodes as indices among them. nodes: in any order; includes every parent."""
    places = {BASE: BASE}
    for place, node in enumerate(nodes):
        places[node] = place
    return tuple([places[parents[node]] for node in nodes])


def is_chain(parents: tuple[int, ...]) -> bool:
    """Returns whether the tree is a chain: each node's parent is the previous node."""
    return not parents or (parents[0] == BASE and parents == tuple(range(BASE, len(parents) - 1)))


def pack(parents: Sequence[int]) -> bytes:
    """Encodes at most 255 parents for a message: 0 for the base, k + 1 for node k."""
    return bytes(parent + 1 for parent in parents)


def unpack(packed: bytes) -> tuple[int, ...]:
    """Decodes the parents of a validated message."""
    return tuple([each - 1 for each in packed])
