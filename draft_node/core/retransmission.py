"""The retransmission timer of a session: when its last message is sent again. No I/O, no clock.

The usual silence is measured after messages that were sent once: after a repetition nobody knows which copy was
answered (Karn's rule; RFC 6298). Where rounds wait for drafts it has the round trip in it. The timeout is at least
twice that. A repetition doubles it, and it stays doubled until a message that was sent once is answered. Otherwise
copies would queue up on a narrow line, delay what follows them, and so cause more copies.
"""

from dataclasses import dataclass

RESEND_S = 1.0
"""The shortest silence after which the last message is repeated; doubles up to MAX_RESEND_S."""

MAX_RESEND_S = 8.0
SMOOTHING = 0.25


@dataclass(slots=True)
class RetransmissionTimer:
    """The timeout of one session."""

    silence_s: float = RESEND_S
    answer_s: float = 0.0  # from a message to what comes next, smoothed; 0 until the first
    _said_at: float | None = None  # None where the answer does not tell that
    _repeated: bool = False

    def said(self, now: float, *, is_timed: bool) -> float:
        """A new message was sent; returns the seconds to wait for its answer.

        is_timed: the answer tells how long silences are. An opened session may wait for memory, so that one is not.
        """
        self._said_at = now if is_timed else None
        self._repeated = False
        return self.silence_s

    def again(self) -> float:
        """The last message is sent again; returns the seconds to wait for an answer to that."""
        self._repeated = True
        self.silence_s = min(2 * self.silence_s, MAX_RESEND_S)
        return self.silence_s

    def answered(self, now: float) -> None:
        """Something new came."""
        if self._repeated:
            return
        if self._said_at is not None:
            seconds = now - self._said_at
            self.answer_s += (seconds - self.answer_s) * (SMOOTHING if self.answer_s else 1.0)
        self.begin()

    def begin(self) -> None:
        """Forgets the repetitions so far: the verify node was away, or there were none."""
        self.silence_s = min(max(RESEND_S, 2 * self.answer_s), MAX_RESEND_S)
