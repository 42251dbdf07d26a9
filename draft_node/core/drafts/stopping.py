"""When a draft ends: below which odds, that all of it is accepted, one more token is not worth drafting. Pure.

AdaSpec's adaptive drafter (Alg. 1): a token is worth drafting while what it is expected to bring exceeds what it costs
to verify, which the verify node tells as `least_odds`, and what its session would have been given in the time that
drafting it takes. Nobody waits for a draft that is made ahead or unasked, so there that time costs nothing.
"""

from dataclasses import dataclass

from draft_node.core.actions import Propose
from goodspeed.fair.smoothing import smoothed

RATE_SMOOTHING = 0.6
"""Weight of the newest value in running means, as in the code of AdaSpec's authors."""


def least_odds(propose: Propose, step_s: float) -> float:
    """Odds below which the draft ends. step_s: seconds that the draft model takes for a token."""
    waiting = propose.rate * step_s if propose.is_awaited else 0.0
    return propose.least_odds + waiting


SHORTEST_S = 1e-3
"""Verdicts that come closer together, as after a hold-up on the line, count as one."""


@dataclass(slots=True)
class Rate:
    """Tokens a second that a text grows by, smoothed; 0 until there are two verdicts at least `SHORTEST_S` apart."""

    value: float = 0.0
    _at: float | None = None
    _num_tokens: int = 0  # since then

    def observe(self, num_tokens: int, now: float) -> None:
        """The text has grown by so many tokens since the last call."""
        if self._at is None:
            self._at = now
            return
        self._num_tokens += num_tokens
        if now - self._at >= SHORTEST_S:
            self.value = smoothed(self.value, self._num_tokens / (now - self._at), RATE_SMOOTHING)
            self._at, self._num_tokens = now, 0
