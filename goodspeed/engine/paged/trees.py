"""Token trees at the end of a chunk: which node sees which, and how deep each lies.

The last tokens of a chunk may be a tree instead of a chain. Its nodes are stored in the rows that tokens of a chain
would be stored in; but a node's position in the text is that of its depth, and it sees only its own ancestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BASE = -1
"""The parent of a first node: the token before the tree."""


@dataclass(frozen=True)
class Tree:
    """The nodes of a tree, parents first."""

    depths: Ints  # [num_nodes] tokens below the base; 1 for a first node
    sees: Bools  # [num_nodes, num_nodes] whether a node's path to the base has another; it has itself

    def __len__(self) -> int:
        return len(self.depths)

    @classmethod
    def of(cls, parents: Sequence[int]) -> "Tree | None":
        """The tree with the parent of each node, an index or -1; None where it is a chain.

        Raises ValueError for a parent that does not come before its node.
        """
        num_nodes = len(parents)
        if any(not BASE <= parent < node for node, parent in enumerate(parents)):
            raise ValueError(f"the parents {list(parents)} are no tree: each comes before its node, or is {BASE}")
        if all(parent == node - 1 for node, parent in enumerate(parents)):
            return None
        depths, sees = np.ones(num_nodes, np.int64), np.eye(num_nodes, dtype=np.bool_)
        for node, parent in enumerate(parents):
            if parent != BASE:
                depths[node] += depths[parent]
                sees[node] |= sees[parent]
        return cls(depths, sees)

    def hidden(self, base: int, num_keys: int, window: int | None) -> Bools:
        """Which of a session's keys each node does not see [num_nodes, num_keys].

        base: row of the token before the tree, counted from the first of these keys; the nodes' rows follow it. Rows up
        to it lie at their own positions. window: tokens that a token sees, itself among them.
        """
        first, end = base + 1, base + 1 + len(self)
        hidden = np.ones((len(self), num_keys), np.bool_)
        hidden[:, :first] = False
        hidden[:, first:end] = ~self.sees
        if window is not None:
            oldest = self.depths - window  # relative to the base: what lies there or before is not seen
            hidden[:, :first] |= np.arange(-base, 1) <= oldest[:, None]
            hidden[:, first:end] |= self.depths <= oldest[:, None]
        return hidden
