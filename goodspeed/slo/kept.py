"""Judges whether a text met its objectives, from the times at which its reader received it. No clock of its own."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from goodspeed.slo.objectives import Objectives

SLACK = 1e-9
"""Tolerance for rounded sums of times, in seconds."""


Outcome: TypeAlias = Literal["attained", "late", "slow"]
"""Outcome of a complete text: objectives met; first token late; or first token in time, and the rest too slow."""


class Kept(NamedTuple):
    """The outcome of a complete text's objectives, by its reader's clock."""

    slo: Objectives
    outcome: Outcome
    ttft_s: float | None
    tpot_s: float | None  # None: fewer than two tokens
    promised: bool | None = None  # None: unknown

    def described(self) -> dict[str, Any]:
        """Returns the outcome as JSON fields, times in milliseconds."""
        return {
            "tier": self.slo.tier or None,
            "ttft_ms": None if self.ttft_s is None else 1000 * self.ttft_s,
            "tpot_ms": None if self.tpot_s is None else 1000 * self.tpot_s,
            "attained": self.outcome == "attained",
            "promised": self.promised,
        }


@dataclass(slots=True)
class Times:
    """Timestamps of one text, on its reader's clock."""

    asked_at: float
    first_at: float | None = None
    last_at: float | None = None
    num_tokens: int = 0

    def delivered(self, num_tokens: int, now: float) -> None:
        """Records tokens that reached the reader, several at once where a draft was accepted."""
        if num_tokens <= 0:
            return
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now
        self.num_tokens += num_tokens

    @property
    def ttft_s(self) -> float | None:
        """Seconds until the first token; None before it."""
        return None if self.first_at is None else self.first_at - self.asked_at

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per token after the first; None before the second."""
        if self.first_at is None or self.last_at is None or self.num_tokens < 2:
            return None
        return (self.last_at - self.first_at) / (self.num_tokens - 1)

    def kept(self, slo: Objectives, promised: bool | None = None) -> Kept:
        """Judges a complete text by its objectives. promised: whether they were promised.

        A text without tokens is late; a text of a single token meets any TPOT.
        """
        in_time = self.ttft_s is not None and (slo.ttft_s is None or self.ttft_s <= slo.ttft_s + SLACK)
        quick = slo.tpot_s is None or self.tpot_s is None or self.tpot_s <= slo.tpot_s + SLACK
        outcome: Outcome = "late" if not in_time else "attained" if quick else "slow"
        return Kept(slo, outcome, self.ttft_s, self.tpot_s, promised)
