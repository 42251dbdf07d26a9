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


@dataclass(slots=True)
class Rate:
    """Tokens a second that a text grows by, smoothed; 0 until there are two verdicts."""

    value: float = 0.0
    _at: float | None = None

    def observe(self, num_tokens: int, now: float) -> None:
        """The text has grown by so many tokens since the last call."""
        if self._at is not None and now > self._at:
            self.value = smoothed(self.value, num_tokens / (now - self._at), RATE_SMOOTHING)
        self._at = now
