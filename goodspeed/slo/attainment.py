"""Judges whether a text met its objectives, from the times at which its reader received it. No clock of its own."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from goodspeed.slo.objectives import Objectives

SLACK = 1e-9
"""Tolerance for rounded sums of times, in seconds."""


NO_OBJECTIVES = Objectives()

Outcome: TypeAlias = Literal["attained", "late", "slow"]
"""Outcome of a complete text: objectives met; first token late; or first token in time, and the rest too slow."""


class Kept(NamedTuple):
    """The outcome of a complete text's objectives, by its reader's clock."""

    slo: Objectives
    outcome: Outcome
    ttft_s: float | None
    tpot_s: float | None  # mean over the text; None: fewer than two tokens
    slowest_tpot_s: float | None  # of the slowest window
    promised: bool | None = None  # None: unknown

    def described(self) -> dict[str, Any]:
        """Returns the outcome as JSON fields, times in milliseconds."""
        return {
            "tier": self.slo.tier or None,
            "ttft_ms": None if self.ttft_s is None else 1000 * self.ttft_s,
            "tpot_ms": None if self.tpot_s is None else 1000 * self.tpot_s,
            "slowest_tpot_ms": None if self.slowest_tpot_s is None else 1000 * self.slowest_tpot_s,
            "attained": self.outcome == "attained",
            "promised": self.promised,
        }


@dataclass(slots=True)
class Times:
    """Timestamps of one text, on its reader's clock, and its objectives.

    A TPOT is measured over windows of `slo.tpot_window` tokens, from the second token on. Tokens left over at the end
    count with the last window. A text without a complete window is measured as a whole. A window's time limit is the
    sum of its tokens' TPOTs; thinking tokens may have another TPOT.
    """

    asked_at: float
    slo: Objectives = NO_OBJECTIVES
    first_at: float | None = None
    last_at: float | None = None
    num_tokens: int = 0
    window_at: float = 0.0  # arrival of the final token of the latest complete window, or of the first token
    _allowed_s: float = 0.0  # for the present window, by its tokens so far
    _last: tuple[float, float] | None = None  # when the latest complete window began, and seconds allowed for it
    _slowest_s: float = 0.0  # mean seconds per token of the slowest complete window
    _was_slow: bool = False  # a complete window took longer than its tokens' TPOTs

    @property
    def window_from(self) -> int:
        """Number of the token, from 0, from which the present window counts."""
        window = self.slo.tpot_window
        return max(0, self.num_tokens - 1) // window * window if window else 0

    def delivered(self, num_tokens: int, now: float, num_thinking: int = 0) -> None:
        """Records tokens that reached the reader; several at once if a draft was accepted.

        num_thinking: number of leading tokens that are the model's thinking.
        """
        for place in range(num_tokens):
            self._delivered_one(now, self.slo.thinking_tpot_s if place < num_thinking else None)

    def _delivered_one(self, now: float, tpot_s: float | None) -> None:
        self.last_at = now
        self.num_tokens += 1
        if self.first_at is None:
            self.first_at = self.window_at = now
            return
        self._allowed_s += (self.slo.tpot_s or 0.0) if tpot_s is None else tpot_s
        window = self.slo.tpot_window
        if window and (self.num_tokens - 1) % window == 0:
            seconds = now - self.window_at
            self._slowest_s = max(self._slowest_s, seconds / window)
            self._was_slow |= seconds > self._allowed_s + SLACK
            self._last = self.window_at, self._allowed_s
            self.window_at, self._allowed_s = now, 0.0

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

    @property
    def slowest_tpot_s(self) -> float | None:
        """Mean seconds per token of the slowest window; None before the second token."""
        if self._last is None or self.last_at is None:
            return self.tpot_s
        num_last = self.slo.tpot_window + self.num_tokens - 1 - self.window_from
        return max(self._slowest_s, (self.last_at - self._last[0]) / num_last)

    @property
    def is_slow(self) -> bool:
        """True if the TPOT was missed. A single token meets any TPOT."""
        if self.slo.tpot_s is None or self.last_at is None:
            return False
        began_at, allowed_s = self._last or (self.window_at, 0.0)
        return self._was_slow or self.last_at - began_at > allowed_s + self._allowed_s + SLACK

    def kept(self, promised: bool | None = None) -> Kept:
        """Judges a complete text by its objectives. promised: whether they were promised. No tokens: late."""
        slo = self.slo
        in_time = self.ttft_s is not None and (slo.ttft_s is None or self.ttft_s <= slo.ttft_s + SLACK)
        outcome: Outcome = "late" if not in_time else "slow" if self.is_slow else "attained"
        return Kept(slo, outcome, self.ttft_s, self.tpot_s, self.slowest_tpot_s, promised)
