"""A circuit breaker around the draft model: it opens when the model fails, takes too long or hangs. No I/O, no clock.

While it is open, sessions continue without drafts and without waiting. It stays open longer after each consecutive
failure (exponential backoff). Then one proposal at a time tests whether the model works again. Requests that came
before it opened are still tried.
"""

from dataclasses import dataclass

DRAFTING_TIMEOUT_S = 5.0
"""Longest step of the draft model; a longer one counts as failed."""

OPEN_S = 5.0
MAX_OPEN_S = 30.0


@dataclass(slots=True)
class CircuitBreaker:
    """Tracks the model's steps. The model thread reports them; the event loop only reads."""

    num_failures: int = 0
    num_in_a_row: int = 0  # consecutive failures
    _until: float = 0.0  # when the breaker closes
    _began: float | None = None  # start of the running step; None: no step runs

    def is_open(self, now: float) -> bool:
        """Returns True if the model must not be used now; a running step that takes too long counts, too."""
        return now < self._until or self.late_since(now) is not None

    def begin(self, now: float) -> None:
        self._began = now

    def end(self, now: float) -> bool:
        """Notes the end of a step without an exception. Returns whether it was in time."""
        in_time = self.late_since(now) is None
        self._began = None
        return in_time

    def worked(self) -> None:
        """Notes a complete proposal with tokens."""
        self.num_in_a_row = 0

    def failed(self, now: float) -> None:
        """Opens the breaker after a step that raised or took too long."""
        self._began = None
        self._until = now + min(OPEN_S * 2 ** min(self.num_in_a_row, 9), MAX_OPEN_S)  # 2**1024 overflows a float
        self.num_failures += 1
        self.num_in_a_row += 1

    def late_since(self, now: float) -> float | None:
        """Returns when the running step began if it takes too long; else None."""
        began = self._began
        return began if began is not None and now - began > DRAFTING_TIMEOUT_S else None
