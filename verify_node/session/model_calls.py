"""When a session's draft model has to draft anew, how long it takes for that, and what a draft in time brings.

A verdict that permits drafts, and leaves nothing of the last one, calls the draft model.
"""

from dataclasses import dataclass

from verify_node.session.client import Client

LATER = 1.1
"""How much later than on average a draft may be that is waited for."""


@dataclass(slots=True)
class ModelCalls:
    """The calls of one session; what they teach is its client's."""

    client: Client
    _called_at: float | None = None  # the verdict since which its draft model has to draft anew
    _has_drafted: bool = False  # since then
    _missed_after_s: float = 0.0  # its silence so far, when that was last held against it
    _last: tuple[bool, int] | None = None  # of the last round: whether it was in time, and the tokens accepted

    @property
    def is_called(self) -> bool:
        """Whether the draft model had to draft anew after the newest verdict."""
        return self._called_at is not None

    @property
    def due_at(self) -> float:
        """When it should have drafted anew, also if it is a little later than usual."""
        return (self._called_at or 0.0) + LATER * self.client.answer_s

    def answered(self, now: float) -> None:
        """It drafted something after the text as it is now."""
        if self._called_at is None:
            return
        if not self._has_drafted:
            self.client.observe_answer_time(now - self._called_at)
        self._has_drafted = True

    def end(self) -> None:
        """It is not called any more: its draft node answered by other means."""
        self._called_at = None

    def verdict_goes_out(self, now: float, *, calls: bool) -> None:
        """calls: a draft model that may draft has to do so anew, since nothing is left of its last draft.

        One that is silent has been called since its last draft ended, however many verdicts ago. Its silence counts
        each time that it has doubled, so that it does not matter how quick rounds are.
        """
        is_silent = self._called_at is not None and not self._has_drafted
        if is_silent and (silence := now - (self._called_at or 0.0)) >= 2.0 * self._missed_after_s:
            self.client.miss_answer(silence)
            self._missed_after_s = silence
        if not calls:
            self._called_at = None
        elif not is_silent:
            self._called_at, self._missed_after_s = now, 0.0
        self._has_drafted = False

    def observe(self, num_accepted: int, drafted: bool | None) -> None:
        """A round is done. drafted: whether it was in time for that; None: it did not have to draft.

        What a draft in time brings shows in that round and in the next: one that comes too late for the first is there
        for the second, and reaches farther.
        """
        if self._last is not None:
            before, num_before = self._last
            self.client.model_gain.observe(num_before + num_accepted, in_time=before)
        self._last = None if drafted is None else (drafted, num_accepted)
