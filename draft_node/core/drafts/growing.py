"""A session's token tree at the draft node, which grows while the target runs its rounds. No I/O.

Its base is the text's end. When the text takes any way through the tree, the base moves along and the rest of the tree
stays; when the text leaves the tree, a new one begins. So the model drafts during the target's rounds, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from draft_node.core.actions import Proposed, Request
from draft_node.core.drafts.ngrams import FLOOR
from draft_node.core.tree import Nodes, Tree
from goodspeed.exact import trees
from goodspeed.wire.fields import MAX_DRAFT

AT_ONCE = 4
"""Tokens per path and request to the draft model under the match rule. Each answer costs both nodes a message. With
more tokens per request the model learns later that the text left the tree. Measured with 1, 2, 3 and 5: no difference.
(A model that drafts more in one forward pass is asked for these. Under the ratio rule one request is for a whole draft,
whose length must not depend on its tokens.)"""

MAX_NODES = 2 * MAX_DRAFT
"""Most nodes from which a tree goes on: those that are too unlikely for a draft now are wanted when the text has come
nearer to them."""


class Wanted(NamedTuple):
    """The next request to the draft model."""

    tree: Nodes  # drafted already
    length: int  # tokens to draft on one path
    max_depth: int  # of any node
    least_probability: float  # path probability of the leaves to draft behind


@dataclass(slots=True)
class Growing:
    """The tree of one session."""

    request: Request
    num_parallel: int = 1  # tokens that the model drafts in one forward pass
    _base_len: int = 0  # length of the text before the tree
    _nodes: Nodes = field(default_factory=Nodes)
    _num_asked: int = 0  # tokens per path that the draft model is drafting now
    _leaf: int = trees.BASE  # the node that it drafts behind first
    _way: tuple[int, ...] = ()  # tokens on the way there

    @property
    def is_asked(self) -> bool:
        """True if the draft model is drafting for the tree."""
        return self._num_asked > 0

    def begin(self, text_len: int) -> None:
        """Begins a new tree after a text of this length."""
        self._base_len, self._num_asked, self._nodes = text_len, 0, Nodes()

    def follows(self, tokens: Sequence[int]) -> bool:
        """Returns whether the text `tokens` is in the tree, or goes on where the draft model is drafting now."""
        new = tokens[self._base_len :]
        return self._nodes.after(new) is not None or (len(new) > len(self._way) and self._is_drafted_for(new))

    def _is_drafted_for(self, new: Sequence[int]) -> bool:
        """Returns whether the draft model is drafting for a text with these tokens after the base."""
        way, most = self._way, len(self._way) + self._num_asked
        return self.is_asked and len(new) <= most and tuple(new[: len(way)]) == way[: len(new)]

    def rest(self, tokens: Sequence[int]) -> Nodes:
        """Returns the nodes that follow the text `tokens`; none if the text left the tree."""
        return self._nodes.after(tokens[self._base_len :]) or Nodes()

    def ask(self, tokens: Sequence[int], permitted: int, least_probability: float) -> Wanted | None:
        """Returns the next request to the draft model; None: nothing to ask. The text `tokens` agrees with the tree.

        If the text has taken a branch, the request replaces the one for the likeliest leaf of before.

        permitted: tokens beyond the text. least_probability: the verify node's least path probability.
        """
        if self._is_drafted_for(tokens[self._base_len :]):
            return None
        self._num_asked = 0
        self._nodes, self._base_len = self.rest(tokens).likeliest(MAX_NODES), len(tokens)
        room = len(self.request.prompt) + self.request.max_tokens - len(tokens) - 1
        max_depth, least_probability = min(permitted, MAX_DRAFT, room), max(least_probability, FLOOR)
        tree = Tree.of(self._nodes)
        leaves = tree.leaves(1, least_probability, max_depth, self.request.stop_ids)
        if not leaves:
            return None
        self._leaf = leaves[0]
        self._way = tuple([tree.tokens[node] for node in tree.path(self._leaf)])
        at_once = max(AT_ONCE, self.num_parallel) if self.request.verification == "match" else MAX_DRAFT
        self._num_asked = min(at_once, max_depth - tree.depth(self._leaf))
        return Wanted(self._nodes, self._num_asked, max_depth, least_probability)

    def extend(self, proposal: Proposed) -> int | None:
        """Appends the draft model's answer. Returns the number of its nodes; None if nothing was asked.

        An answer without a node behind the leaf that was asked for is not appended (0): the same would be asked again.
        """
        if not self._num_asked:
            return None
        self._num_asked = 0
        num_known, num_new = len(self._nodes.tokens), len(proposal.tokens)
        parents = proposal.parents or (self._leaf, *range(num_known, num_known + num_new))[:num_new]
        if self._leaf not in parents:
            return 0
        self._nodes = Nodes(
            self._nodes.tokens + proposal.tokens,
            self._nodes.probabilities + (proposal.probabilities or (1.0,) * num_new),
            self._nodes.parents + parents,
        )
        return num_new
