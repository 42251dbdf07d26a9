"""The draft model's token tree beyond a text: the likeliest continuation, alternatives, and what follows them. No I/O.

The tree is extended at the nodes with the highest path probability (AdaServe, arXiv 2501.12162, Eq. 4): the probability
that the text contains all tokens up to the node. When the text takes an alternative, its continuation is thus already
drafted. Measured with both embedded draft models at every temperature: if the first choice is wrong, the second is
right in two of five cases, the third in one of six, the fourth in one of eleven (experiments/LOG.md).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest

from msgspec import Struct

from goodspeed.exact import trees
from goodspeed.exact.trees import BASE
from goodspeed.ngram.drafting import Continuation

ALTERNATIVES = (0.4, 0.17, 0.09, 0.06, 0.04, 0.03, 0.02)
"""Probabilities that the second, third, ... eighth choice is right if the first is wrong."""

LEAST = 0.01
"""Least path probability of an alternative."""


KEPT = 0.05
"""Least probability of an alternative given its parent. An alternative above it is kept even if its parent is unlikely,
because the text may reach the parent."""


class Nodes(Struct, frozen=True, dict=True):
    """Nodes of a token tree, parents before their children, and the first choice before its alternatives."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()  # of each node's acceptance, given its parent
    parents: tuple[int, ...] = ()  # indexes; -1: the node follows the text

    @classmethod
    def of(cls, chain: Continuation) -> "Nodes":
        """Returns a chain as a tree."""
        return cls(chain.tokens, chain.probabilities, tuple(range(BASE, len(chain.tokens) - 1)))

    @cached_property
    def path_probabilities(self) -> Sequence[float]:
        """For each node the product of the probabilities from the base to the node."""
        found = [1.0]  # of the base, then of each node
        for probability, parent in zip(self.probabilities, self.parents, strict=True):
            found.append(probability * found[parent + 1])
        return found[1:]

    @property
    def num_expected(self) -> float:
        """Returns the expected number of accepted tokens."""
        return sum(self.path_probabilities)

    def after(self, new: Sequence[int]) -> "Nodes | None":
        """Returns the nodes that follow these tokens of the text; None if the text left the tree."""
        if not new:
            return self
        at = trees.follow(self.tokens, self.parents, new)
        return None if at is None else self._cut_to(*trees.below(self.parents, at))

    def likeliest(self, number: int, stop_ids: Collection[int] = ()) -> "Nodes":
        """Returns at most `number` nodes: the chain of first choices, then the likeliest others.

        Leaves out stop ids and the nodes after them: the target draws the end of the text in the same round anyway.
        """
        every = range(len(self.tokens))
        chain = trees.first_choices(self.parents)
        others = sorted(set(every).difference(chain))
        others.sort(key=self.path_probabilities.__getitem__, reverse=True)  # stable, so parents stay first
        nodes = [*chain, *others]
        if not set(stop_ids).isdisjoint(self.tokens):
            nodes = self._before(stop_ids, nodes)
        nodes = nodes[:number]
        return self if nodes == [*every] else self._cut_to(nodes, trees.pick(self.parents, nodes))

    def includes(self, other: "Nodes") -> bool:
        """Returns whether each path of the other tree is a path of this one."""
        known = {key: node for node, key in enumerate(zip(self.parents, self.tokens, strict=True))}
        places = [BASE]  # here, of the base and of each node of the other tree
        for token, parent in zip(other.tokens, other.parents, strict=True):
            place = known.get((places[parent + 1], token))
            if place is None:
                return False
            places.append(place)
        return True

    def _before(self, stop_ids: Collection[int], nodes: Sequence[int]) -> list[int]:
        """Returns those of the nodes, parents first, that neither are stop ids nor follow one."""
        kept = {BASE: None}  # in order
        for node in nodes:
            if self.parents[node] in kept and self.tokens[node] not in stop_ids:
                kept[node] = None
        return [*kept][1:]

    def _cut_to(self, nodes: Sequence[int], parents: tuple[int, ...]) -> "Nodes":
        tokens, probabilities = self.tokens, self.probabilities
        return Nodes(tuple([tokens[each] for each in nodes]), tuple([probabilities[each] for each in nodes]), parents)


@dataclass(slots=True)
class Tree:
    """A growing tree. A leaf has nothing drafted after it; without nodes, the base (-1) is one."""

    tokens: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)  # 1 for a node that follows the text
    _path_probabilities: list[float] = field(default_factory=list)
    _inner: set[int] = field(default_factory=set)  # nodes, or the base, with children

    @classmethod
    def of(cls, nodes: Nodes) -> "Tree":
        likely, depths = list(nodes.path_probabilities), trees.depths(nodes.parents)
        return cls(
            list(nodes.tokens), list(nodes.probabilities), list(nodes.parents), depths, likely, set(nodes.parents)
        )

    def nodes(self, first: int = 0) -> Nodes:
        """Returns the nodes from index `first` on; parents are indexes in the whole tree."""
        return Nodes(tuple(self.tokens[first:]), tuple(self.probabilities[first:]), tuple(self.parents[first:]))

    def add(self, token: int, probability: float, parent: int, calibrated: float | None = None) -> int:
        """Appends a node and returns its index.

        calibrated: probability for the path, if it is known better than `probability`, which is what is claimed.
        """
        self.tokens.append(token)
        self.probabilities.append(probability)
        self.parents.append(parent)
        self.depths.append(self.depth(parent) + 1)
        given_parent = probability if calibrated is None else calibrated
        self._path_probabilities.append(given_parent * self.path_probability(parent))
        self._inner.add(parent)
        return len(self.tokens) - 1

    def merge(self, nodes: Nodes) -> None:
        """Adds those of the nodes that are not in the tree."""
        known = {key: node for node, key in enumerate(zip(self.parents, self.tokens, strict=True))}
        places = {BASE: BASE}
        for node, (token, probability, parent) in enumerate(
            zip(nodes.tokens, nodes.probabilities, nodes.parents, strict=True)
        ):
            key = places[parent], token
            if key not in known:
                known[key] = self.add(token, probability, places[parent])
            places[node] = known[key]

    def close(self, node: int) -> None:
        """Notes that nothing can follow a node."""
        self._inner.add(node)

    def is_leaf(self, node: int) -> bool:
        return node not in self._inner

    def depth(self, node: int) -> int:
        return 0 if node == BASE else self.depths[node]

    def path_probability(self, node: int) -> float:
        return 1.0 if node == BASE else self._path_probabilities[node]

    def path(self, node: int) -> list[int]:
        """Returns the nodes from the base to a node, the node included."""
        found: list[int] = []
        while node != BASE:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def others(self, parent: int, first: float) -> list[float]:
        """Returns the probabilities of the alternatives worth drafting beside a child, the likeliest first.

        first: probability of the child.
        """
        above = self.path_probability(parent)
        found = (min(first, share * (1.0 - first)) for share in ALTERNATIVES)
        return [probability for probability in found if above * probability >= LEAST or probability >= KEPT]

    def leaves(self, width: int, least_probability: float, max_depth: int, stop_ids: Collection[int]) -> list[int]:
        """Returns the `width` likeliest leaves to extend.

        Leaves out those below `least_probability`, at `max_depth`, or after a stop id.
        """
        if not self.tokens:
            return [BASE] if self.is_leaf(BASE) and max_depth > 0 and least_probability <= 1.0 else []
        found = [
            node
            for node, token in enumerate(self.tokens)
            if node not in self._inner
            and self._path_probabilities[node] >= least_probability
            and self.depths[node] < max_depth
            and token not in stop_ids
        ]
        return nlargest(width, found, key=self._path_probabilities.__getitem__)
