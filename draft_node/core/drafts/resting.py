"""Pauses the draft model ("rest") while its tokens come too late to be accepted.

If many draft models share a machine, or the target is faster, a draft model may never finish a token in time. It still
takes compute and memory bandwidth from others. So the draft node tracks the share of accepted model tokens in its
texts. If the share is too small after a trial, the model rests, and is tried again later. No I/O, no clock: time is
counted in tokens of the texts.
"""

from dataclasses import dataclass, field

LEAST_SHARE = 0.03
"""Least share of accepted model tokens in the texts; below it the model rests."""

TRIAL, LEAST_TRIAL = 24, 512
"""Length of a trial: TRIAL tokens per text, and at least LEAST_TRIAL over all texts. Accepted tokens come in runs, and
some texts are drafted by n-grams alone: after a shorter trial, a useful model would often rest."""

REST = 96
"""Length of a rest after a failed trial, in tokens per text; doubles with each further failure, up to MAX_REST."""

MAX_REST = 8 * REST


@dataclass(slots=True)
class Resting:
    """Trials and rests of one draft node's model, over all its texts."""

    is_resting: bool = False
    is_permitted: bool = True
    """By the latest verdict on a text that the model may draft for. Where draft models slow the verify node, it permits
    none of them to draft, whatever the text."""
    _rest: int = REST  # tokens per text of this rest, or of the next
    _num_tokens: int = 0  # over all texts, since the trial or the rest began
    _num_accepted: int = 0  # of these, tokens that the model drafted
    _texts: set[bytes] = field(default_factory=set)  # open texts that have grown since then

    def observe(self, session_id: bytes, num_tokens: int, num_accepted: int) -> None:
        """Counts new tokens of a text. num_accepted: those of them that the model had drafted."""
        self._num_tokens += num_tokens
        self._num_accepted += num_accepted
        self._texts.add(session_id)
        num_texts = len(self._texts)
        if self.is_resting:
            if self._num_tokens >= self._rest * num_texts:
                self._rest = min(2 * self._rest, MAX_REST)
                self._begin(is_resting=False)
        elif self._num_tokens >= max(TRIAL * num_texts, LEAST_TRIAL):
            is_used = self._num_accepted >= LEAST_SHARE * self._num_tokens
            self._rest = REST if is_used else self._rest
            self._begin(is_resting=not is_used)

    def forget(self, session_id: bytes) -> None:
        """Stops counting a text: many short ones must not put off the end of a trial or of a rest."""
        self._texts.discard(session_id)

    def _begin(self, *, is_resting: bool) -> None:
        self.is_resting, self._num_tokens, self._num_accepted = is_resting, 0, 0
        self._texts.clear()
