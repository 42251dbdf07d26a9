"""What waiting for a client's drafts brings: tokens accepted where what was hoped for was there in time, less tokens
accepted where it was not.

Without it a session goes on with what is left of an older draft, or with what the verify node drafts from its own text.
Where that is as good, as with an index that knows nothing else, waiting brings nothing.
"""

from dataclasses import dataclass, field

MEMORY = 200.0
"""Rounds that count; older ones are forgotten, since texts change."""

KNOWN = 24.0
"""After so many rounds of either kind both means are known well enough to be looked after only now and then."""

FIRST_TOKENS, FIRST_ROUNDS = 1.0, 4.0
"""What a draft in time is believed to bring at first, as if seen in so many rounds: so it is waited for at all."""


@dataclass(slots=True)
class _Mean:
    """A mean over the last rounds."""

    value: float
    num: float

    def observe(self, tokens: int) -> None:
        self.num = min(self.num + 1.0, MEMORY)
        self.value += (tokens - self.value) / self.num


@dataclass(slots=True)
class DraftGain:
    """Two means of accepted tokens, and their difference."""

    _in_time: _Mean = field(default_factory=lambda: _Mean(FIRST_TOKENS, FIRST_ROUNDS))
    _too_late: _Mean = field(default_factory=lambda: _Mean(0.0, FIRST_ROUNDS))

    @property
    def tokens(self) -> float:
        """Tokens more that are accepted if the draft is there in time; at least 0."""
        return max(0.0, self._in_time.value - self._too_late.value)

    @property
    def is_known(self) -> bool:
        """Whether rounds of both kinds have told enough."""
        return min(self._in_time.num, self._too_late.num) >= KNOWN

    def observe(self, num_accepted: int, *, in_time: bool) -> None:
        """A round moved one of the client's sessions. in_time: what was hoped for was there when it was packed.

        num_accepted: drafted tokens, of that round, or of that and the next.
        """
        (self._in_time if in_time else self._too_late).observe(num_accepted)
