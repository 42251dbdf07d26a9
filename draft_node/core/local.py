"""A text that the draft model writes alone while the verify node is away (`--fallback local`), and its end. No I/O.

What it writes is another distribution than the target's, so every such token is marked. It is asked for one at a time:
were several drawn at once, then which of them are given up when the verify node comes back would depend on what they
are, and the target's own tokens after them would not be quite the target's. Knows nothing about a session's states.
"""

from dataclasses import dataclass
from typing import NamedTuple

from draft_node.core.actions import Fail, Finish, Request

RETRY_S = 0.5
"""A draft model that failed, or had no room for a token, is asked again after this time."""

GIVE_UP_S = 60.0
"""A text that got no token for this long is given up: the draft model cannot go on either."""


class Terms(NamedTuple):
    """What the draft model alone can do now, and why it has to."""

    away: str  # what is said of the verify node to those who cannot go on
    context_len: int  # of the draft model
    target_context_len: int | None  # None: the verify node has not been seen yet


@dataclass(slots=True)
class Local:
    """One text that the draft model writes on alone."""

    request: Request
    terms: Terms
    wrote_at: float  # when it wrote its last token, or else began

    def end(self, num_tokens: int) -> Finish | Fail | None:
        """Why a text of so many tokens, its prompt included, does not go on; None: it does."""
        terms = self.terms
        context_len = terms.context_len if terms.target_context_len is None else terms.target_context_len
        if num_tokens >= min(len(self.request.prompt) + self.request.max_tokens, context_len):
            return Finish("length")
        if self.request.num_logprobs is not None or self.request.num_prompt_logprobs is not None:
            return self._fail("log-probabilities are the target's own")
        if num_tokens >= terms.context_len:
            return self._fail(f"{num_tokens} tokens leave no room in the draft model's context of {terms.context_len}")
        return None

    def give_up(self, now: float) -> Fail | None:
        """The failure if no token was written for GIVE_UP_S; None as long as the text may go on."""
        if now - self.wrote_at <= GIVE_UP_S:
            return None
        return self._fail(f"it has written nothing for {GIVE_UP_S:g} s; its log says why")

    def _fail(self, why: str) -> Fail:
        return Fail("verify_away", f"{self.terms.away}; the draft model does not go on alone: {why}")
