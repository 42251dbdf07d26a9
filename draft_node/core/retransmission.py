"""The retransmission timer of a session: when its latest message is sent again. No I/O, no clock.

The answer time is measured only on messages sent once: after a retransmission it is unknown which copy was answered
(Karn's rule; RFC 6298). If rounds wait for drafts, the answer time includes the round trip. The timeout is twice the
smoothed answer time, within RESEND_S and MAX_RESEND_S. A retransmission doubles the timeout until a message sent once
is answered. Otherwise copies would queue up on a narrow line, delay the messages behind them, and so cause more copies.
"""

from dataclasses import dataclass

RESEND_S = 1.0
"""Shortest timeout, in seconds; doubles up to MAX_RESEND_S."""

MAX_RESEND_S = 8.0
SMOOTHING = 0.25


@dataclass(slots=True)
class RetransmissionTimer:
    """The timeout of one session."""

    silence_s: float = RESEND_S  # the timeout
    answer_s: float = 0.0  # smoothed time from a message to its answer; 0 until the first
    _said_at: float | None = None  # when the latest message was sent; None: its answer is not timed
    _repeated: bool = False

    def said(self, now: float, *, is_timed: bool) -> float:
        """Notes a new message; returns the seconds to wait for its answer.

        is_timed: the answer counts as a measurement. An OpenSession's does not: the session may wait for memory.
        """
        self._said_at = now if is_timed else None
        self._repeated = False
        return self.silence_s

    def again(self) -> float:
        """Notes a retransmission; returns the seconds to wait for an answer."""
        self._repeated = True
        self.silence_s = min(2 * self.silence_s, MAX_RESEND_S)
        return self.silence_s

    def answered(self, now: float) -> None:
        """Measures the answer time and resets the timeout, unless the message was retransmitted."""
        if self._repeated:
            return
        if self._said_at is not None:
            seconds = now - self._said_at
            self.answer_s += (seconds - self.answer_s) * (SMOOTHING if self.answer_s else 1.0)
        self.begin()

    def begin(self) -> None:
        """Resets the timeout to the one without retransmissions."""
        self.silence_s = min(max(RESEND_S, 2 * self.answer_s), MAX_RESEND_S)
