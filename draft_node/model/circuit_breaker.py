"""A circuit breaker around the draft model: it opens when the model fails, takes too long or hangs. No I/O, no clock.

While it is open, sessions go on without drafts and wait for nothing. After each failure in a row it stays open for
longer, and then one proposal at a time tells whether the model works again.
"""

from dataclasses import dataclass

from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S

OPEN_S = 5.0
MAX_OPEN_S = 30.0


@dataclass(slots=True)
class CircuitBreaker:
    """Told of the model's steps on its thread, and asked in the event loop: each field is written by one of them."""

    num_failures: int = 0
    num_in_a_row: int = 0
    _until: float = 0.0
    _began: float | None = None  # the step that runs

    def is_open(self, now: float) -> bool:
        """Returns whether the model is not to be asked now. A step that takes too long opens it, too."""
        return now < self._until or self._is_late(now)

    def begin(self, now: float) -> None:
        """A step begins."""
        self._began = now

    def end(self, now: float) -> bool:
        """The step is over and raised nothing. Returns whether it was in time."""
        in_time = not self._is_late(now)
        self._began = None
        return in_time

    def worked(self) -> None:
        """A proposal is complete."""
        self.num_in_a_row = 0

    def failed(self, now: float) -> None:
        """A step raised, or took too long."""
        self._began = None
        self._until = now + min(OPEN_S * 2**self.num_in_a_row, MAX_OPEN_S)
        self.num_failures += 1
        self.num_in_a_row += 1

    def _is_late(self, now: float) -> bool:
        began = self._began
        return began is not None and now - began > DRAFTING_TIMEOUT_S
