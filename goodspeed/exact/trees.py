"""Token trees as plain integers: of each node its token, and the index of its parent, or -1 for the base.

The base is the newest token that is decided. Parents come before their nodes, and of a node's children the first is
what its drafter thinks most likely: its first choice. Knows nothing about odds, tensors or messages.
"""

from collections.abc import Sequence

BASE = -1
"""The parent of a first node."""


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


def below(parents: Sequence[int], at: int) -> list[int]:
    """All nodes under a node, in order; under the base all there are."""
    under = {at}
    for node, parent in enumerate(parents):
        if parent in under:
            under.add(node)
    return sorted(under - {at})


def pick(parents: Sequence[int], nodes: Sequence[int], base: int = BASE) -> tuple[int, ...]:
    """The parents of these nodes among themselves. nodes: ascending, each with its parent unless that is the base."""
    places = {base: BASE} | {node: place for place, node in enumerate(nodes)}
    return tuple(places[parents[node]] for node in nodes)


def is_chain(parents: Sequence[int]) -> bool:
    """Whether each node follows the one before it."""
    return all(parent == node - 1 for node, parent in enumerate(parents))


def pack(parents: Sequence[int]) -> bytes:
    """The parents as a message has them, at most 255 of them: 0 for the base, k + 1 for node k."""
    return bytes(parent + 1 for parent in parents)


def unpack(packed: bytes) -> tuple[int, ...]:
    """The parents from a message that was checked."""
    return tuple(each - 1 for each in packed)
