"""One proposal in the making: what is drafted of it so far. Plain data; knows nothing about caches or the model."""

import time
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.core.drafts.tree import second_odds
from goodspeed.exact import proposals


@dataclass(slots=True)
class Job:
    """One proposal in the making."""

    propose: Propose
    length: int  # tokens to draft; 0 only brings the cache up to date
    tokens: list[int] = field(init=False)  # base and what is drafted so far
    started: float = field(default_factory=time.perf_counter)
    noise_seed: int = field(init=False)  # of its session's own draws under the ratio rule
    drafted: list[int] = field(default_factory=list)
    positions: list[bytes] = field(default_factory=list)  # packed distributions, ratio rule
    chances: list[float] = field(default_factory=list)  # of being accepted, of each token drafted
    alternatives: list[int | None] = field(default_factory=list)  # to each token drafted, match rule

    def __post_init__(self) -> None:
        self.tokens = list(self.propose.tokens)
        self.noise_seed = _noise_seed(self.propose.request)

    @property
    def session_id(self) -> bytes:
        return self.propose.request.session_id

    @property
    def by_match(self) -> bool:
        """Whether it is drawn with the target's noise; a local text always is, also under the ratio rule."""
        return self.propose.local or self.propose.request.verification == "match"

    @property
    def odds(self) -> float:
        """Probability that all of it is accepted, by the draft model's own confidence; 1 if that is not computed."""
        return prod(self.chances)

    @property
    def _knows_chances(self) -> bool:
        """Whether every drafted token has one; a proposal that was taken over may have been begun without."""
        return len(self.chances) == len(self.drafted)

    @property
    def doubts(self) -> bool:
        """Whether an alternative to its newest token is wanted, and may be worth verifying."""
        if not self.propose.wants_alternatives or not self._knows_chances:
            return False
        return prod(self.chances[:-1]) * second_odds(self.chances[-1]) >= self.propose.least_odds

    @property
    def stopped(self) -> bool:
        """Nothing after an end of sequence is worth a place in the budget.

        Under the ratio rule the draft goes on all the same: were it done sooner for some tokens than for others, then
        a draft that is given up because it takes too long would not be given up by chance alone.
        """
        return self.by_match and bool(self.drafted) and self.drafted[-1] in self.propose.request.stop_ids

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.drafted.append(token)

    def take_over(self, unfinished: "Job") -> None:
        """Goes on where a proposal made ahead stands, if what it assumed came true; one token at least is left to draw.

        This is exact under the ratio rule too: its tokens were drawn with the noise of a round that will never be sent.
        """
        first = len(self.tokens) - len(unfinished.propose.tokens)
        if first < 0 or unfinished.tokens[: len(self.tokens)] != self.tokens:
            return
        taken = slice(first, first + max(0, self.length - 1))
        self.drafted = unfinished.drafted[taken]
        self.positions = unfinished.positions[taken]
        self.chances = unfinished.chances[taken]
        self.alternatives = unfinished.alternatives[taken]
        self.tokens += self.drafted

    def proposed(self, *, empty: bool = False) -> Proposed:
        """The proposal as it stands; empty: without what is drafted of it."""
        ratio = not self.by_match
        num_guesses = int(self.propose.ahead and not empty and bool(self.drafted))
        drafted = [] if empty else self.drafted[num_guesses:]
        return Proposed(
            session_id=self.session_id,
            epoch=self.propose.epoch,
            round=self.propose.round,
            tokens=tuple(drafted),
            proposal=proposals.encode(self.positions[num_guesses:]) if ratio and drafted else None,
            drafting_s=time.perf_counter() - self.started,
            guess=self.drafted[0] if num_guesses else None,
            odds=self.odds,
            chances=tuple(self.chances[num_guesses:]) if drafted and self._knows_chances else None,
            alternatives=tuple(self.alternatives[num_guesses:]) if drafted and not ratio else (),
        )


def _noise_seed(request: Request) -> int:
    """Seed of the session's own draws, from its seed and its id: sessions of one seed must not draw alike.

    The verify node tests whether a client's tokens, over all of its sessions, are drawn from the distributions it
    sends; equal draws in many sessions would look like a choice.
    """
    data = request.session_id + request.sampling.seed.to_bytes(8, "little")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1
