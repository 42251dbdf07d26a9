"""What waiting for a client's offers brings: tokens accepted where what was hoped for was there before the round, less
those where it was not. Both count that round and the next: what misses one round is there for the next, and reaches
farther by then.

Without an answer a session goes on with what is left of an older offer, or with what the verify node drafts from its
own text. Where that is as good, as with an index that knows nothing else, waiting brings nothing. Knows nothing about
rounds or messages.
"""

from dataclasses import dataclass, field

MEMORY = 200.0
"""Rounds that count; older ones are forgotten, since texts change."""

FIRST_TOKENS, FIRST_ROUNDS = 1.0, 4.0
"""What an answer in time is believed to bring at first, as if seen in so many rounds: so it is waited for at all."""


@dataclass(slots=True)
class _Mean:
    """A mean over the last rounds."""

    value: float
    num: float

    def observe(self, tokens: int) -> None:
        self.num = min(self.num + 1.0, MEMORY)
        self.value += (tokens - self.value) / self.num


@dataclass(slots=True)
class OfferGain:
    """Two means of accepted tokens, and their difference."""

    _answered: _Mean = field(default_factory=lambda: _Mean(FIRST_TOKENS, FIRST_ROUNDS))
    _unanswered: _Mean = field(default_factory=lambda: _Mean(0.0, FIRST_ROUNDS))

    @property
    def tokens(self) -> float:
        """Tokens more that are accepted in a round if the answer is there; at least 0."""
        return max(0.0, self._answered.value - self._unanswered.value)

    def observe(self, num_accepted: int, *, answered: bool) -> None:
        """Two rounds moved one of the client's sessions. answered: what was hoped for was there before the first."""
        (self._answered if answered else self._unanswered).observe(num_accepted)
