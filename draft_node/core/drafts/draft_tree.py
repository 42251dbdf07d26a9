"""A session's token tree at the draft node, which grows while the target runs its rounds. No I/O.

The tree's base is the end of the text. While the text follows a path of the tree, the base moves along that path and
the rest of the tree stays. When the text leaves the tree, a new tree begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.generation import Generation
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import Nodes, Tree
from goodspeed.exact import trees
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.probabilities import FLOOR

AT_ONCE = 4
"""Tokens per path and request to the draft model under the match rule. Each answer costs both nodes a message. With
more tokens per request the model learns later that the text left the tree. Measured with 1, 2, 3 and 5: no difference.
A model that drafts more tokens in one forward pass gets requests for that many. Under the ratio rule one request is for
a whole draft, because its length must not depend on its tokens."""

MAX_NODES = 2 * MAX_DRAFT
"""Most nodes of a tree that are kept. A node too unlikely for the present draft may be sent later, when the text has
come nearer to it."""


@dataclass(slots=True)
class DraftTree:
    """Keeps one session's token tree in step with its text, and requests tokens for it from the draft model."""

    request: Generation
    num_parallel: int = 1  # tokens that the model drafts in one forward pass
    has_branches: bool = True  # the verify node verifies alternatives
    _base_len: int = 0  # length of the text before the tree
    _nodes: Nodes = field(default_factory=Nodes)
    _num_asked: int = 0  # tokens per path that the draft model is drafting now
    _leaf: int = trees.BASE  # the leaf that the draft model extends first
    _path: tuple[int, ...] = ()  # tokens on the path to that leaf

    @property
    def is_asked(self) -> bool:
        return self._num_asked > 0

    def begin(self, text_len: int) -> None:
        self._base_len, self._num_asked, self._nodes = text_len, 0, Nodes()

    def follows(self, tokens: Sequence[int]) -> bool:
        """Returns whether the text `tokens` follows the tree, or the path that the draft model is extending now."""
        new = tokens[self._base_len :]
        is_in_it = trees.follow(self._nodes.tokens, self._nodes.parents, new) is not None
        return is_in_it or (len(new) > len(self._path) and self._is_drafted_for(new))

    def _is_drafted_for(self, new: Sequence[int]) -> bool:
        """Returns whether the draft model is drafting for a text with these tokens after the base."""
        way, most = self._path, len(self._path) + self._num_asked
        return self.is_asked and len(new) <= most and tuple(new[: len(way)]) == way[: len(new)]

    def rest(self, tokens: Sequence[int]) -> Nodes:
        """Returns the nodes that follow the text `tokens`; none if the text left the tree."""
        return self._nodes.after(tokens[self._base_len :]) or Nodes()

    def ask(
        self, tokens: Sequence[int], permitted: int, least_probability: float, epoch: int = 0, number: int = 0
    ) -> Propose | None:
        """Returns the next request to the draft model; None: nothing to ask. The text `tokens` agrees with the tree.

        If the text took a branch, the request replaces the outstanding one, which extends a leaf of another branch.

        permitted: tokens beyond the text. least_probability: the verify node's least path probability. number: of the
        request.
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
        self._path = tuple([tree.tokens[node] for node in tree.path(self._leaf)])
        by_match = self.request.verification == "match"
        at_once = max(AT_ONCE, self.num_parallel) if by_match else MAX_DRAFT
        self._num_asked = min(at_once, max_depth - tree.depth(self._leaf))
        return Propose(
            self.request,
            epoch,
            number,
            tuple(tokens),
            self._num_asked,
            least_probability if by_match else 0.0,
            self._nodes,
            max_depth,
            wants_alternatives=by_match and self.has_branches,
        )

    def extend(self, proposal: Proposed) -> int | None:
        """Appends the draft model's answer. Returns the number of nodes in it; None if nothing was asked.

        Ignores an answer that does not extend the requested leaf, and returns 0: the same request would follow again.
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
