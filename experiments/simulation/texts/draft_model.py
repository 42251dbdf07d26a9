"""The draft model of the simulated world: what it proposes, the probability that it claims, and the time it takes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.text import VOCAB, draw, feed, feed_all, start
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import Tree
from goodspeed.exact import trees
from goodspeed.exact.proposal_bytes import certain
from goodspeed.fair.round_time import CostModel, Linear

NO_TIME = Linear()


def likeliest_leaf(tree: Tree, wanted: Propose) -> int:
    """The leaf that the proposal extends first; the base where there is none to extend."""
    return next(iter(tree.leaves(1, 0.0, wanted.max_depth, wanted.request.stop_ids)), trees.BASE)


def drawn(state: int, rate: float) -> tuple[int, bool]:
    """The draft model's token in this state, and whether it is the target's; `rate`: how often it is."""
    token, chance = draw(state)
    return (token, True) if chance < rate else ((token + 1) % VOCAB, False)


class Drafted(NamedTuple):
    """A drafted token, the state in which it was drawn, and how often the second choice is right if it is wrong."""

    token: int
    state: int
    second_rate: float

    @property
    def second(self) -> int:
        """The draft model's next best token there."""
        token, chance = draw(feed(self.state, VOCAB))
        right = draw(self.state)[0]
        if self.token != right and chance < self.second_rate:
            return right
        return next(other for other in range(token, token + 3) if other % VOCAB not in (self.token, right)) % VOCAB


class DraftModel:
    """Proposes tokens that agree with the target as often as the session's acceptance process says.

    It answers proposals as `goodspeed/drafting/drafter.py` does.
    """

    def __init__(
        self, acceptances: Mapping[bytes, Acceptance], cost: CostModel = NO_TIME, parallel_decay: float | None = None
    ) -> None:
        """cost: of a pass. parallel_decay: as in `Settings`."""
        self._is_parallel = parallel_decay is not None
        self._decay = 1.0 if parallel_decay is None else parallel_decay
        self._acceptances = acceptances
        self._cost = cost
        self._known: dict[bytes, tuple[int, int]] = {}  # committed tokens of a session, and the state after them

    def answer(self, wanted: Propose, sharing: int, *, failed: bool) -> tuple[Proposed, float]:
        """Returns what comes of a Propose, and the seconds that it takes. failed: no tokens come of it."""
        by_match = wanted.request.verification == "match"
        tree = Tree.of(wanted.tree)
        leaf = likeliest_leaf(tree, wanted)
        way = [tree.tokens[node] for node in tree.path(leaf)]
        claimed = self._claims(wanted, len(way), tree.path_probability(leaf))
        seconds = self._seconds(wanted, sharing, len(way), len(claimed))
        drafted = [] if failed else self.propose(wanted, way)[: len(claimed)]
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
            num_rows = max(self.num_new(wanted), num_known) + max(0, wanted.length - 1)
            return self._cost.round_s(num_rows + (sharing - 1) * max(1, wanted.length), sharing, context)
        first_s = self._cost.round_s(self.num_new(wanted) + sharing - 1, sharing, context)
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

    def num_new(self, wanted: Propose) -> int:
        """Tokens to be fed before the first can be drafted; what it drafted itself has been."""
        if wanted.tree.tokens:
            return 1
        return max(1, len(wanted.tokens) - self._known.get(wanted.request.session_id, (0, 0))[0])

    def propose(self, wanted: Propose, way: Sequence[int]) -> list[Drafted]:
        """Returns `length` tokens behind the likeliest leaf. way: tokens on the path to it."""
        state, on_path, offset = *self._catch_up(wanted, way), len(way)
        acceptance = self._acceptances[wanted.request.session_id]
        position = len(wanted.tokens) + offset
        drafted: list[Drafted] = []
        for depth in range(wanted.length):
            rate = acceptance.rate(position + depth, offset, on_path) * self._decay**depth
            token, agrees = drawn(state, rate)
            drafted.append(Drafted(token, state, acceptance.second(position + depth, on_path)))
            on_path = on_path and agrees
            state = feed(state, token)
            offset += 1
        return drafted

    def forget(self, session_id: bytes) -> None:
        """The text is over."""
        self._known.pop(session_id, None)

    def _catch_up(self, wanted: Propose, way: Sequence[int]) -> tuple[int, bool]:
        """State after the proposal's likeliest leaf, and whether the way there is right."""
        key, tokens = wanted.request.session_id, wanted.tokens
        length, state = self._known.get(key) or (0, start(wanted.request.sampling.seed))
        state = feed_all(state, tokens[length:])
        self._known[key] = len(tokens), state
        on_path = True
        for token in way:
            on_path = on_path and token == draw(state)[0]
            state = feed(state, token)
        return state, on_path


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
