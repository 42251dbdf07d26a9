"""One proposal in the making: what is drafted of it so far. Plain data."""

from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod

from draft_node.core.actions import Propose, Proposed
from draft_node.core.drafts.tree import second_probability
from goodspeed.exact import proposals


@dataclass(slots=True)
class Job:
    """One proposal in the making."""

    propose: Propose
    length: int  # tokens to draft; 0 only brings the cache up to date
    tokens: list[int] = field(init=False)  # base and what is drafted so far
    positions: list[bytes] = field(default_factory=list)  # packed distributions, ratio rule
    probabilities: list[float] = field(default_factory=list)  # of being accepted, of each token drafted; match rule
    alternatives: list[int | None] = field(default_factory=list)  # to each token drafted, match rule

    def __post_init__(self) -> None:
        self.tokens = list(self.propose.tokens)

    @property
    def session_id(self) -> bytes:
        return self.propose.request.session_id

    @property
    def drafted(self) -> list[int]:
        return self.tokens[len(self.propose.tokens) :]

    @property
    def num_drafted(self) -> int:
        return len(self.tokens) - len(self.propose.tokens)

    @property
    def noise_seed(self) -> int:
        """Seed of its session's own draws under the ratio rule, from the session's seed and id.

        Sessions of one seed must not draw alike: the verify node tests whether a client's tokens, over all of its
        sessions, are drawn from the distributions it sends, and equal draws in many sessions would look like a choice.
        """
        request = self.propose.request
        data = request.session_id + request.sampling.seed.to_bytes(8, "little")
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1

    @property
    def by_match(self) -> bool:
        """True if it is drawn with the target's noise; a local text always is, also under the ratio rule."""
        return self.propose.local or self.propose.request.verification == "match"

    @property
    def doubts(self) -> bool:
        """True if an alternative to its newest token is wanted, and may be worth verifying."""
        if not self.propose.wants_alternatives:
            return False
        return (
            prod(self.probabilities[:-1]) * second_probability(self.probabilities[-1]) >= self.propose.least_probability
        )

    @property
    def doubts_all(self) -> bool:
        """True if its acceptance as a whole is too improbable to go on; never under the ratio rule, where no draft
        is cut by what its own tokens are."""
        return prod(self.probabilities) < self.propose.least_probability

    @property
    def stopped(self) -> bool:
        """Nothing after an end of sequence is worth a place in the budget.

        Under the ratio rule the draft goes on all the same: were it done sooner for some tokens than for others, then
        a draft that is given up because it takes too long would not be given up by chance alone.
        """
        return self.by_match and self.num_drafted > 0 and self.tokens[-1] in self.propose.request.stop_ids

    def proposed(self, *, empty: bool = False) -> Proposed:
        """The proposal as it stands; empty: without what is drafted of it."""
        if empty or not self.num_drafted:
            return Proposed(self.session_id, self.propose.epoch, self.propose.round, ())
        return Proposed(
            session_id=self.session_id,
            epoch=self.propose.epoch,
            round=self.propose.round,
            tokens=tuple(self.drafted),
            proposal=None if self.by_match else proposals.encode(self.positions),
            probabilities=tuple(self.probabilities) if self.by_match else None,
            alternatives=tuple(self.alternatives),
        )
