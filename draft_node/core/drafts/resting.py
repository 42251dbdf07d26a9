"""Lets the draft model rest where its tokens come too late, drafting costs and brings nothing.

Many draft models on one machine, or one beside a faster target, may never finish a token before the text has it. They
take time and memory bandwidth from others all the same. So a draft node counts what share of its texts its model's
tokens make up. If that is too little after a trial, the model rests, and is tried again later. No I/O, no clock: time
is counted in tokens of the texts.
"""

from dataclasses import dataclass, field

LEAST_SHARE = 0.03
"""Share of the texts' tokens that must be accepted tokens of the model."""

TRIAL, LEAST_TRIAL = 24, 512
"""Tokens of each text, and of all texts at least, after which the share is judged. Accepted tokens come in runs, and
some texts are drafted by n-grams alone: after fewer, a model that is of use would often rest."""

REST = 96
"""Tokens of each text for which the model rests after one trial that failed; after the next, twice as many."""

MAX_REST = 8 * REST


@dataclass(slots=True)
class Resting:
    """Trials and rests of one draft node's model, over all its texts."""

    is_resting: bool = False
    _rest: int = REST  # tokens of each text, if this trial fails
    _num_tokens: int = 0  # of all texts, since the trial or the rest began
    _num_accepted: int = 0  # of these, tokens that the model drafted
    _texts: set[bytes] = field(default_factory=set)  # that have grown since then

    def observe(self, session_id: bytes, num_tokens: int, num_accepted: int) -> None:
        """A text has grown by `num_tokens`, of which the model had drafted `num_accepted`."""
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

    def _begin(self, *, is_resting: bool) -> None:
        self.is_resting, self._num_tokens, self._num_accepted = is_resting, 0, 0
        self._texts.clear()
