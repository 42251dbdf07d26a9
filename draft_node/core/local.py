"""A text that the draft model writes alone while the verify node is away (`--fallback local`), and its end. No I/O.

These tokens follow the draft model's distribution, not the target's, so each is marked. They are drawn one at a time.
If several were drawn at once, some would be dropped when the verify node returns, and their number would depend on the
tokens themselves. The target's tokens after them would then not quite follow the target's distribution.
"""

from dataclasses import dataclass
from typing import NamedTuple

from draft_node.core.actions import Action, Deliver, Fail, Finish, Proposed, Statistics
from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S, Asking
from draft_node.core.text import Text

RETRY_S = 0.5
"""Seconds before the next attempt if the draft model failed or had no room for a token."""

GIVE_UP_S = 60.0
"""Seconds without a token after which the text fails, because the draft model does not work either."""


class Terms(NamedTuple):
    """Conditions for writing alone: the reason and the context limits."""

    away: str  # the verify node's absence, as described to users whose texts fail
    context_len: int  # of the draft model
    target_context_len: int | None  # None: the verify node has not been seen yet


@dataclass(slots=True)
class Local:
    """One text that the draft model continues alone."""

    text: Text
    asking: Asking
    statistics: Statistics
    terms: Terms
    wrote_at: float  # time of the latest token, or of the beginning
    ask_at: float = 0.0  # when to ask the draft model again if it has not answered
    is_over: bool = False

    def begin(self, now: float) -> list[Action]:
        """Asks the draft model for the next token, or ends the text."""
        end = self._end()
        if end is not None:
            self.is_over = True
            return [end]
        self.asking.turn()
        return self._ask(now)

    def proposed(self, proposal: Proposed, now: float) -> list[Action]:
        """Appends the token that the draft model drew; without one, asks again after RETRY_S."""
        if not proposal.tokens:
            self.ask_at = now + RETRY_S
            return []
        token = proposal.tokens[0]
        if token in self.text.request.stop_ids:
            self.is_over = True
            return [Finish("stop")]
        self.text.write(token, now)
        self.statistics.num_tokens += 1
        self.statistics.num_local += 1
        self.wrote_at = now
        return [Deliver((token,), local=True), *self.begin(now)]

    def ask_again(self, now: float) -> list[Action]:
        """Asks again in the same round: the first answer counts, and a second one would be the same.

        The text fails if no token was written for GIVE_UP_S.
        """
        if now - self.wrote_at <= GIVE_UP_S:
            return self._ask(now)
        self.is_over = True
        return [self._fail(f"it has written nothing for {GIVE_UP_S:g} s; its log says why")]

    def _ask(self, now: float) -> list[Action]:
        self.ask_at = now + DRAFTING_TIMEOUT_S
        return [self.asking.alone(self.text.tokens)]

    def _end(self) -> Finish | Fail | None:
        """Returns the reason why the text cannot be continued; None: it can."""
        terms, request, num_tokens = self.terms, self.text.request, len(self.text.tokens)
        context_len = terms.context_len if terms.target_context_len is None else terms.target_context_len
        if num_tokens >= min(len(request.prompt) + request.max_tokens, context_len):
            return Finish("length")
        if request.num_logprobs is not None or request.num_prompt_logprobs is not None:
            return self._fail("only the target has the requested log-probabilities")
        if num_tokens >= terms.context_len:
            return self._fail(f"{num_tokens} tokens leave no room in the draft model's context of {terms.context_len}")
        return None

    def _fail(self, why: str) -> Fail:
        return Fail("verify_away", f"{self.terms.away}; the draft model cannot continue alone: {why}")
