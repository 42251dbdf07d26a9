"""How likely it is that a draft made ahead of a verdict is of use. Knows nothing about messages or about drafting.

Such a draft assumes that the whole draft before it is accepted, and that the draft model's own guess of the token after
it is right. Where that seldom happens, drafting ahead warms the room: a session watches its verdicts, and drafts ahead
only while the odds are good.
"""

from dataclasses import dataclass

INITIAL_ODDS = 0.5
"""Good enough to try at first."""

LEAST_ODDS = 0.3
"""Below, more than two of three drafts made ahead would be thrown away."""

SMOOTHING = 0.2


@dataclass(slots=True)
class Odds:
    """Smoothed share of verdicts that confirm all of a draft and the guess of the token after it."""

    value: float = INITIAL_ODDS
    least: float = LEAST_ODDS

    @property
    def are_good(self) -> bool:
        return self.value >= self.least

    def observe(self, came_true: float) -> None:
        """1 or 0 where a guess was made; else how likely one would have been right, so that no trial is needed."""
        self.value += SMOOTHING * (came_true - self.value)
