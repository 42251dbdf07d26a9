"""Times a session's draft model: from a verdict that leaves nothing drafted to its new draft."""

from dataclasses import dataclass
from math import inf

from verify_node.clients.client import ANSWER_TOKENS, Client

LATER = 1.1
"""A draft is waited for during its usual time multiplied by this factor."""


@dataclass(slots=True)
class DraftTimer:
    """Tracks when a session's draft model must draft anew, and how long that takes; the client learns from it.

    A verdict that permits drafts and leaves nothing of the previous draft calls the draft model.
    """

    client: Client
    _called_at: float | None = None  # time of the verdict that called the draft model; None: not called
    _has_drafted: bool = False  # since the call
    _is_behind: bool = True  # it has to prefill much before its next draft: the prompt, or what it may not draft for
    _missed_after_s: float = 0.0  # length of its silence at the latest counted miss
    _last: tuple[bool, int] | None = None  # of the previous round: whether the draft was in time, and tokens accepted

    @property
    def is_called(self) -> bool:
        """True if the draft model had to draft anew after the newest verdict."""
        return self._called_at is not None

    @property
    def due_at(self) -> float:
        """Time at which the new draft should have arrived, with a margin for small delays."""
        return inf if self._is_behind else (self._called_at or 0.0) + LATER * self.client.answer_s

    def answered(self, now: float, num_tokens: float = ANSWER_TOKENS) -> None:
        """Records the arrival of a draft for the current text. num_tokens: time to draft it, in tokens."""
        was_behind, self._is_behind = self._is_behind, False
        if self._called_at is None:
            return
        if not self._has_drafted and not was_behind:
            self.client.observe_answer_time(now - self._called_at, num_tokens)
        self._has_drafted = True

    def pause(self) -> None:
        """Notes that the draft model may not draft: its next draft will take longer, by the time to catch up."""
        self._is_behind = True

    def answered_by_index(self, now: float, *, only: bool) -> None:
        """Ends the call of the draft model: its node sent a draft of the n-gram index instead.

        A late draft does not end it, or a node could make rounds wait for its silent model, and hide that. only: the
        model will not draft after it (ratio rule), so even a late draft ends the call.
        """
        if only or now <= self.due_at:
            self._called_at = None

    def verdict_goes_out(self, now: float, *, calls: bool) -> None:
        """Records a verdict. calls: the draft model may draft, and must do so anew, as no draft remains.

        A silent draft model counts as called since its previous draft ended, even many verdicts ago. The silence counts
        as a miss each time that it has doubled, independent of the speed of rounds, unless the model is behind.
        """
        is_silent, silence = self._called_at is not None and not self._has_drafted, now - (self._called_at or 0.0)
        if is_silent and not self._is_behind and silence >= 2.0 * self._missed_after_s:
            self.client.miss_answer(silence)
            self._missed_after_s = silence
        if not calls:
            self._called_at = None
        elif not is_silent:
            self._called_at, self._missed_after_s = now, 0.0
        self._has_drafted = False

    def end_round(self, num_accepted: int, drafted: bool | None) -> None:
        """Counts the tokens accepted in a finished round, and updates the client's gain from drafts of its model.

        drafted: whether the session's new draft arrived in time for the round; None: it needed no new draft. Each
        update covers the previous round and this one, because a draft too late for the first is verified in the second,
        and is then longer.
        """
        if self._last is not None:
            before, num_before = self._last
            self.client.observe_model(num_before + num_accepted, in_time=before)
        self._last = None if drafted is None else (drafted, num_accepted)
