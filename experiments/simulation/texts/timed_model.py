"""A draft model of the simulated world with the time that its steps take, and the probability that it claims."""

from collections.abc import Mapping, Sequence

from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.models import Drafted, DraftModel, likeliest_leaf
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import Tree
from goodspeed.exact.proposal_bytes import certain
from goodspeed.fair.round_time import CostModel


class TimedModel:
    """Answers proposals as `goodspeed/drafting/drafter.py` does."""

    def __init__(
        self, acceptances: Mapping[bytes, Acceptance], cost: CostModel, parallel_decay: float | None = None
    ) -> None:
        """parallel_decay: as in `Settings`."""
        self._is_parallel = parallel_decay is not None
        self._decay = 1.0 if parallel_decay is None else parallel_decay
        self._model = DraftModel(acceptances, self._decay)
        self._acceptances = acceptances
        self._cost = cost

    def forget(self, session_id: bytes) -> None:
        """The text is over."""
        self._model.forget(session_id)

    def answer(self, wanted: Propose, sharing: int, *, failed: bool) -> tuple[Proposed, float]:
        """Returns what comes of a Propose, and the seconds that it takes. failed: no tokens come of it."""
        by_match = wanted.request.verification == "match"
        tree = Tree.of(wanted.tree)
        leaf = likeliest_leaf(tree, wanted)
        way = [tree.tokens[node] for node in tree.path(leaf)]
        claimed = self._claims(wanted, len(way), tree.path_probability(leaf))
        seconds = self._seconds(wanted, sharing, len(way), len(claimed))
        drafted = [] if failed else self._model.propose(wanted, way)[: len(claimed)]
        if by_match and wanted.wants_alternatives and drafted:
            return _with_alternatives(wanted, tree, leaf, drafted, claimed), seconds
        tokens = tuple([one.token for one in drafted])
        return Proposed(
            wanted.request.session_id,
            wanted.epoch,
            wanted.round,
            tokens,
            proposal=None if by_match else certain(tokens),
            probabilities=claimed[: len(tokens)] if by_match else (),
        ), seconds

    def _seconds(self, wanted: Propose, sharing: int, num_known: int, num_drafted: int) -> float:
        """Steps of the draft model are shared by all proposals in the making, as many as there are at the beginning.

        The first step feeds what the cache lacks, and draws the first token. In parallel it is the only one: it feeds
        masks for the other tokens, whose keys and values are dropped, so what was drafted before is fed again.
        """
        context = sharing * len(wanted.tokens)
        if self._is_parallel:
            num_rows = max(self._model.num_new(wanted), num_known) + max(0, wanted.length - 1)
            return self._cost.round_s(num_rows + (sharing - 1) * max(1, wanted.length), sharing, context)
        first_s = self._cost.round_s(self._model.num_new(wanted) + sharing - 1, sharing, context)
        return first_s + max(0, num_drafted - 1) * self._cost.round_s(sharing, sharing, context)

    def _claims(self, wanted: Propose, num_known: int, path_probability: float) -> tuple[float, ...]:
        """The probability that the draft model claims of each token, until their product is below what is worth it.

        With the token that makes them so low the draft ends, as in `goodspeed/drafting/drafter.py`. num_known, and
        path_probability: of the leaf that the proposal extends.
        """
        acceptance = self._acceptances[wanted.request.session_id]
        least_probability = wanted.least_probability if wanted.request.verification == "match" else 0.0
        position = len(wanted.tokens) + num_known
        claims: list[float] = []
        while len(claims) < wanted.length and (path_probability >= least_probability or not claims):
            depth = len(claims)
            claims.append(acceptance.probabilities(position + depth, depth) * self._decay**depth)
            path_probability *= claims[-1]
        return tuple(claims)


def _with_alternatives(
    wanted: Propose, tree: Tree, leaf: int, drafted: Sequence[Drafted], claimed: Sequence[float]
) -> Proposed:
    """The chain behind this leaf, and the second choice beside each token that is likely enough; all go into `tree`."""
    num_known, parent = len(tree.tokens), leaf
    for one, claim in zip(drafted, claimed, strict=True):
        above, parent = parent, tree.add(one.token, claim, parent)
        if seconds := tree.others(above, claim):
            tree.add(one.second, seconds[0], above)
    new = tree.nodes(num_known)
    return Proposed(
        wanted.request.session_id,
        wanted.epoch,
        wanted.round,
        new.tokens,
        probabilities=new.probabilities,
        parents=new.parents,
    )
