"""Token trees as plain integers: of each node its token, and the index of its parent, or -1 for the base.

The base is the newest token that is decided. Parents come before their nodes, and of a node's children the first is
what its drafter thinks most likely: its first choice.
"""

from collections.abc import Sequence
from functools import lru_cache

BASE = -1
"""The parent of a first node."""

SHAPES = 1024
"""Trees whose alternatives are remembered by their shape: drafters make few shapes, and each is looked at often."""


def depths(parents: Sequence[int]) -> list[int]:
    """Tokens from the base to each node; 1 for a first node."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == BASE else found[parent] + 1)
    return found


def first_choices(parents: Sequence[int]) -> list[int]:
    """The nodes that are reached from the base by taking the first choice each time."""
    chain, at = [], BASE
    for node, parent in enumerate(parents):
        if parent == at:
            chain.append(node)
            at = node
    return chain


@lru_cache(maxsize=SHAPES)
def alternatives(parents: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The nodes that are no first choice, in order, each with the first choice that follows the same node."""
    first: dict[int, int] = {}
    both = ((node, first.setdefault(parent, node)) for node, parent in enumerate(parents))
    return tuple((node, chosen) for node, chosen in both if node != chosen)


def paths(tokens: Sequence[int], parents: Sequence[int] | None) -> list[tuple[int, ...]]:
    """Returns for each node the tokens from a first node down to it, itself included; parents None: a chain."""
    if parents is None:
        return [tuple(tokens[: node + 1]) for node in range(len(tokens))]
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        found.append((*(found[parent] if parent != BASE else ()), token))
    return found


def accepted(drawn: Sequence[int], tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The nodes that the match rule accepts, from a first node down: see `rejection.match_tree`."""
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
    """The node that a text from the base on leads to, -1 for no text; None where the tree has not that text."""
    at = BASE
    for token in text:
        nodes = (node for node in range(at + 1, len(tokens)) if parents[node] == at and tokens[node] == token)
        found = next(nodes, None)
        if found is None:
            return None
        at = found
    return at


def below(parents: Sequence[int], at: int) -> tuple[list[int], tuple[int, ...]]:
    """All nodes under a node, in order, and their parents among themselves; under the base all there are."""
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
    """The nodes, and their parents, without those that repeat an earlier one after the same node, and those below."""
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
    """The parents of these nodes among themselves. nodes: ascending, each with its parent unless that is the base."""
    places = {BASE: BASE}
    for place, node in enumerate(nodes):
        places[node] = place
    return tuple([places[parents[node]] for node in nodes])


def is_chain(parents: tuple[int, ...]) -> bool:
    """Returns whether each node follows the one before it."""
    return not parents or (parents[0] == BASE and parents == tuple(range(BASE, len(parents) - 1)))


def pack(parents: Sequence[int]) -> bytes:
    """The parents as a message has them, at most 255 of them: 0 for the base, k + 1 for node k."""
    return bytes(parent + 1 for parent in parents)


def unpack(packed: bytes) -> tuple[int, ...]:
    """The parents from a message that was checked."""
    return tuple([each - 1 for each in packed])
