"""Token trees at the end of a chunk: each node's depth, and the nodes that it sees.

The final tokens of a chunk may form a tree instead of a chain. Nodes are stored in the same rows as a chain's tokens,
but a node's position in the text follows from its depth. Among the nodes, each sees only its ancestors and itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goodspeed.exact.trees import BASE

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """The nodes of a tree, parents first."""

    depths: Ints  # [num_nodes] tokens below the base; 1 for a first node
    sees: Bools  # [num_nodes, num_nodes] True where the column is the row's ancestor, or the row itself

    def __len__(self) -> int:
        return len(self.depths)

    @classmethod
    def of(cls, parents: Sequence[int]) -> "Tree | None":
        """Builds the tree from each node's parent, an index or -1; returns None for a chain.

        Raises ValueError for a parent that does not come before its node.
        """
        num_nodes = len(parents)
        if list(parents) == list(range(BASE, num_nodes - 1)):
            return None
        seen: list[int] = []  # nodes that each node sees, as bits: faster than rows of an array
        for node, parent in enumerate(parents):
            if not BASE <= parent < node:
                raise ValueError(f"the parents {list(parents)} are not a tree: each must precede its node or be {BASE}")
            seen.append(1 << node | (seen[parent] if parent != BASE else 0))
        num_bytes = -(-num_nodes // 8)
        packed = b"".join([bits.to_bytes(num_bytes, "little") for bits in seen])
        octets = np.frombuffer(packed, np.uint8).reshape(num_nodes, num_bytes)
        sees = np.unpackbits(octets, axis=1, count=num_nodes, bitorder="little").view(np.bool_)
        return cls(sees.sum(axis=1), sees)

    def hidden(self, nodes: Ints, base: int, num_keys: int, window: int | None) -> Bools:
        """Returns the session keys hidden from each of these nodes [len(nodes), num_keys].

        base: row of the token before the tree, relative to the first key; the nodes' rows follow. Rows up to the base
        lie at their own positions. window: tokens that a token sees, itself included; None: all.
        """
        first, end = base + 1, base + 1 + len(self)
        hidden = np.ones((len(nodes), num_keys), np.bool_)
        hidden[:, :first] = False
        hidden[:, first:end] = ~self.sees[nodes]
        if window is not None:
            oldest = self.depths[nodes] - window  # relative to the base; this position and earlier ones are hidden
            hidden[:, :first] |= np.arange(-base, 1) <= oldest[:, None]
            hidden[:, first:end] |= self.depths <= oldest[:, None]
        return hidden
