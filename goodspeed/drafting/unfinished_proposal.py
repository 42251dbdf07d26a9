"""An unfinished proposal with the tree drafted so far, and the rows of logits that extend it."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import LEAST, Nodes, Tree
from goodspeed.exact import trees
from goodspeed.exact.trees import BASE
from goodspeed.wire import probabilities


@dataclass(slots=True)
class UnfinishedProposal:
    """A Propose, and what is drafted for it so far."""

    propose: Propose
    length: int  # tokens to draft on one path; 0 only updates the KV cache
    tree: Tree = field(init=False)  # the Propose's tree, and the nodes drafted so far
    num_drafted: int = 0  # tokens drafted after the likeliest leaf of each step
    newest: int = BASE  # the latest of these tokens' nodes
    is_narrow: bool = False  # pages suffice only for the chain of first choices
    positions: list[bytes] = field(default_factory=list)  # packed distributions, ratio rule
    by_match: bool = field(init=False)  # under the match rule, which draws with the target's noise
    has_rules: bool = field(init=False)  # which tokens are permitted can depend on the tokens before

    def __post_init__(self) -> None:
        request = self.propose.request
        self.tree = Tree.of(self.propose.tree)
        self.by_match = request.verification == "match"
        self.has_rules = request.logit_rules is not None or request.constraint is not None or request.min_tokens > 0

    def take_over(self, older: "UnfinishedProposal") -> None:
        """Takes the nodes that a replaced proposal has drafted after the text."""
        length = len(older.text)
        if self.propose.wants_alternatives and older.propose.wants_alternatives and self.text[:length] == older.text:
            self.tree.merge(older.tree.nodes().after(self.text[length:]) or Nodes())

    @property
    def session_id(self) -> bytes:
        return self.propose.request.session_id

    @property
    def text(self) -> tuple[int, ...]:
        return self.propose.tokens

    def path(self, node: int) -> list[int]:
        """Returns the drafted tokens from the base to the node, the node included."""
        return [self.tree.tokens[each] for each in self.tree.path(node)]

    def leaves(self, width: int) -> list[int]:
        """Returns the leaves to extend in the next step, the likeliest first; empty: the proposal is complete.

        Under the match rule no token after a stop id is worth verification budget. Under the ratio rule neither stop
        ids nor probabilities end a draft: then which drafts time out would depend on their tokens.
        """
        propose, tree = self.propose, self.tree
        stop_ids = propose.request.stop_ids if self.by_match else ()
        most = len(tree.tokens) if self.is_narrow else width if propose.wants_alternatives else 1
        found = tree.leaves(max(1, most), min(LEAST, propose.least_probability), propose.max_depth, stop_ids)
        if self.is_narrow:
            end = (BASE, *trees.first_choices(tree.parents))[-1]
            found = [end] if end in found else []
        return found if found and tree.path_probability(found[0]) >= propose.least_probability else []

    def likely(self, width: int) -> list[float]:
        """Returns the path probabilities of `leaves`."""
        return [self.tree.path_probability(leaf) for leaf in self.leaves(width)]

    def others(self, parent: int, first: float) -> list[float]:
        """Returns the probabilities of the alternatives worth drafting beside a token of probability `first`."""
        return self.tree.others(parent, first) if self.propose.wants_alternatives else []

    def ends_with(self, node: int) -> bool:
        """Returns whether nothing is drafted after a node."""
        is_stop = self.by_match and self.tree.tokens[node] in self.propose.request.stop_ids
        return is_stop or self.tree.path_probability(node) < self.propose.least_probability

    @property
    def is_complete(self) -> bool:
        return self.num_drafted >= self.length or not self.leaves(1)

    @property
    def noise_seed(self) -> int:
        """Seed of the session's draws under the ratio rule, from the request's seed and the session id.

        Sessions with the same seed must draw differently: the verify node tests over all sessions of a client whether
        tokens are drawn from the distributions sent. Equal draws in many sessions would look like deliberate choices.
        """
        request = self.propose.request
        data = request.session_id + request.sampling.seed.to_bytes(8, "little")
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1

    def proposed(self, *, empty: bool = False) -> Proposed:
        """Returns the proposal with the nodes drafted so far; empty: without them."""
        new = self.tree.nodes(first=len(self.propose.tree.tokens))
        if empty or not new.tokens:
            return Proposed(self.session_id, self.propose.epoch, self.propose.round, ())
        return Proposed(
            session_id=self.session_id,
            epoch=self.propose.epoch,
            round=self.propose.round,
            tokens=new.tokens,
            proposal=None if self.by_match else b"".join(self.positions),
            probabilities=new.probabilities if self.by_match else None,
            parents=new.parents if self.by_match else None,
        )


class Row(NamedTuple):
    """A row of logits, and where its token goes."""

    job: UnfinishedProposal
    leaf: int  # the node (or the base) that the step extends
    place: int = 0  # number of mask tokens from the leaf to this row
    is_first: bool = True  # the leaf is its job's likeliest

    @property
    def parent(self) -> int:
        return self.job.newest if self.place else self.leaf

    @property
    def position(self) -> int:
        return len(self.job.text) + self.job.tree.depth(self.leaf) + self.place

    @property
    def is_over(self) -> bool:
        """True if the draft ended before the row, so that its masks stand for tokens that were not drafted."""
        return self.place > 0 and (self.job.num_drafted >= self.job.length or self.job.ends_with(self.parent))

    def append(self, token: int, probability: float) -> None:
        """Appends the row's token to the tree."""
        known = self.job.propose.calibrated
        calibrated = None if known is None else known[probabilities.code(probability)]
        node = self.job.tree.add(token, probability, self.parent, calibrated)
        if self.is_first:
            self.job.num_drafted += 1
            self.job.newest = node
