"""An unfinished proposal with the tokens drafted so far. Plain data."""

from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod

from draft_node.core.actions import Propose, Proposed
from draft_node.core.drafts.tree import second_probability
from goodspeed.exact import proposals


@dataclass(slots=True)
class Job:
    """One unfinished proposal."""

    propose: Propose
    length: int  # tokens to draft; 0 only updates the KV cache
    tokens: list[int] = field(init=False)  # `propose.tokens` and the tokens drafted so far
    num_known: int = 0  # of these, tokens known to the newest forward pass; masks stood for the others
    positions: list[bytes] = field(default_factory=list)  # packed distributions, ratio rule
    probabilities: list[float] = field(default_factory=list)  # acceptance probability per drafted token, match rule
    alternatives: list[int | None] = field(default_factory=list)  # second choice per drafted token, match rule

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
        """Seed of the session's draws under the ratio rule, from the request's seed and the session id.

        Sessions with the same seed must draw differently: the verify node tests over all sessions of a client whether
        tokens are drawn from the distributions sent. Equal draws in many sessions would look like deliberate choices.
        """
        request = self.propose.request
        data = request.session_id + request.sampling.seed.to_bytes(8, "little")
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1

    @property
    def by_match(self) -> bool:
        """True if tokens are drawn with the target's noise: under the match rule, and always for a local text."""
        return self.propose.local or self.propose.request.verification == "match"

    @property
    def has_rules(self) -> bool:
        """True if what may be drawn next can depend on the tokens before it."""
        request = self.propose.request
        return request.logit_rules is not None or request.constraint is not None or request.min_tokens > 0

    @property
    def doubts(self) -> bool:
        """True if an alternative to the newest token is wanted and probable enough to be verified."""
        if not self.propose.wants_alternatives:
            return False
        return (
            prod(self.probabilities[:-1]) * second_probability(self.probabilities[-1]) >= self.propose.least_probability
        )

    @property
    def doubts_all(self) -> bool:
        """True if acceptance of the whole draft is too improbable to continue. Never under the ratio rule, where a
        draft's length must not depend on its tokens."""
        return prod(self.probabilities) < self.propose.least_probability

    @property
    def stopped(self) -> bool:
        """True after a stop id: tokens after it are not worth verification budget.

        Never under the ratio rule: if some tokens ended drafting sooner, then which drafts time out would depend on
        their tokens.
        """
        return self.by_match and self.num_drafted > 0 and self.tokens[-1] in self.propose.request.stop_ids

    def proposed(self, *, empty: bool = False) -> Proposed:
        """Returns the proposal with the tokens drafted so far; empty: without them."""
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
