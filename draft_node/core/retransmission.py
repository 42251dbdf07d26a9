"""After how long a silence a session says its last word again. No I/O, no clock; knows nothing about messages.

A way there and back is measured on words that were said once: of one that was repeated nobody knows which copy was
answered (Karn's rule; RFC 6298 has the rest). The silence is at least twice as long as that. After a word that had to
be repeated it stays as long as it has become, until one is answered that was not. Else, on a narrow line, copies would
queue up in front of what comes after them, and make everything late, and so make more copies.
"""

from dataclasses import dataclass

RESEND_S = 1.0
"""The shortest silence after which the last word is repeated; doubles up to MAX_RESEND_S."""

MAX_RESEND_S = 8.0
SMOOTHING = 0.25


@dataclass(slots=True)
class RetransmissionTimer:
    """How patient one session has become."""

    silence_s: float = RESEND_S
    answer_s: float = 0.0  # from word to answer, smoothed; 0 until the first
    _said_at: float | None = None  # None where the answer does not tell how long the way is
    _repeated: bool = False

    def said(self, now: float, *, is_timed: bool) -> float:
        """A new word; gives the silence after it. `is_timed`: its answer tells how long the way is.

        So it is with a draft that was made afresh. An opened session may wait for memory, and what follows an Ack, or a
        draft made ahead, is on its way before those arrive.
        """
        self._said_at = now if is_timed else None
        self._repeated = False
        return self.silence_s

    def again(self) -> float:
        """The word is repeated; gives the silence after that."""
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
        """Repeats so far tell nothing of what comes: the other side was away, or there were none."""
        self.silence_s = min(max(RESEND_S, 2 * self.answer_s), MAX_RESEND_S)
