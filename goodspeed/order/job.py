"""One who waits for a place or has one, as an order sees it. Knows nothing about what a place is."""

import math
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is known about one text. Seconds throughout; services are of the contended thing (slot time, round time)."""

    job_id: Hashable
    arrived_at: float
    waits_since: float | None = None  # None: it has a place
    attained_s: float = 0.0  # E_i, service so far, over all its turns
    turn_s: float = 0.0  # of that, since it was given the place that it has
    remaining_tokens: float = math.inf  # L_i, expected
    rates: tuple[float, ...] = ()  # acceptance rate after each of its last rounds (`RateHistory.rates`)
    num_drafted: float = 0.0  # n, drafted tokens of a round
    draft_s: float = 0.0  # T_draft, of one drafted token
    round_s: float = 0.0  # T_target, of one verification; the whole cadence where drafting is not told apart
    recompute_s: float = 0.0  # what it costs to come back to a place after giving it up now

    @property
    def has_place(self) -> bool:
        return self.waits_since is None

    def remaining_s(self, rate: float) -> float:
        """T_i of the paper's Eq. (6) over the tokens that are left: L_i (n T_draft + T_target) / (n A_i + 1)."""
        seconds = self.num_drafted * self.draft_s + self.round_s
        if not seconds:
            return 0.0  # inf tokens at no cost are no time, and not nan
        return self.remaining_tokens * seconds / (self.num_drafted * rate + 1.0)
