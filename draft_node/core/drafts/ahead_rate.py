"""The rate at which drafts made ahead of a verdict come true. Knows nothing about messages or about drafting.

Such a draft assumes that the whole draft before it is accepted, and that the draft model guesses the token after it.
Where that seldom happens, drafting ahead only wastes energy. So a session measures the rate on its verdicts, and drafts
ahead while it is high enough.
"""

from dataclasses import dataclass

INITIAL_RATE = 0.5
"""High enough to try at first."""

LEAST_RATE = 0.3
"""Below, more than two of three drafts made ahead would be thrown away."""

SMOOTHING = 0.2


@dataclass(slots=True)
class AheadRate:
    """The smoothed share of verdicts that confirm a whole draft and the guess of the token after it."""

    value: float = INITIAL_RATE
    least: float = LEAST_RATE

    @property
    def is_worthwhile(self) -> bool:
        return self.value >= self.least

    def observe(self, came_true: float) -> None:
        """Takes 1 or 0 if a guess was made; otherwise the probability that one would have been right."""
        self.value += SMOOTHING * (came_true - self.value)
