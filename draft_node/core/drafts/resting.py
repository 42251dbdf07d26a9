"""Whether the draft model drafts unasked, or rests: where its tokens come too late, drafting costs and brings nothing.

Many draft models on one machine, or one beside a faster target, may never finish a token before the text has it. They
take time and memory bandwidth from others all the same. So a draft node counts what share of its texts its unasked
tokens make up. If that is too little after a trial, the model rests, and is tried again later. No I/O, no clock: time
is counted in tokens of the texts. Knows nothing about sessions or messages.
"""

from dataclasses import dataclass

LEAST_SHARE = 0.03
"""Share of the texts' tokens that must be accepted tokens of the model: resting can cost no more than that."""

TRIAL = 24
"""Tokens of each text after which the share is judged."""

REST = 96
"""Tokens of each text for which the model rests after one trial that failed; after the next, twice as many."""

MAX_REST = 8 * REST


@dataclass(slots=True)
class Resting:
    """Trials and rests of one draft node's model, over all its texts."""

    num_texts: int = 0  # that are being written
    is_resting: bool = False
    _rest: int = REST  # tokens of each text, if this trial fails
    _num_tokens: int = 0  # of all texts, since the trial or the rest began
    _num_accepted: int = 0  # of these, tokens that the model drafted unasked

    def observe(self, num_tokens: int, num_accepted: int) -> None:
        """A text has grown by `num_tokens`, of which the model had drafted `num_accepted` unasked."""
        self._num_tokens += num_tokens
        self._num_accepted += num_accepted
        each = self._num_tokens / max(1, self.num_texts)
        if self.is_resting:
            if each >= self._rest:
                self._rest = min(2 * self._rest, MAX_REST)
                self._begin(is_resting=False)
        elif each >= TRIAL:
            is_used = self._num_accepted >= LEAST_SHARE * self._num_tokens
            self._rest = REST if is_used else self._rest
            self._begin(is_resting=not is_used)

    def _begin(self, *, is_resting: bool) -> None:
        self.is_resting, self._num_tokens, self._num_accepted = is_resting, 0, 0
