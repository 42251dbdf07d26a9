"""The draft model's chain of tokens beyond the text, which grows while the target runs its rounds. No I/O.

While the text agrees with the chain, the model drafts on at the chain's end. When the text leaves the chain, a new one
begins at the text's end. So the model drafts during the target's rounds, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from draft_node.core.actions import Proposed, Request
from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import MAX_DRAFT

AT_ONCE = 4
"""Tokens per request to the draft model under the match rule. Each answer costs both nodes a message. With more tokens
per request the model learns later that the text left the chain. Measured with 1, 2, 3 and 5: no difference. (A model
that drafts more in one forward pass is asked for these. Under the ratio rule one request is for a whole draft, whose
length must not depend on its tokens.)"""


class Wanted(NamedTuple):
    """The next request to the draft model."""

    tokens: tuple[int, ...]  # the text, and the chain after it
    length: int  # tokens to draft
    least_probability: float  # path probability of the new tokens at which drafting stops


@dataclass(slots=True)
class Chain:
    """The chain of one session."""

    request: Request
    num_parallel: int = 1  # tokens that the model drafts in one forward pass
    _base_len: int = 0  # length of the text before the chain
    _tokens: list[int] = field(default_factory=list)
    _probabilities: list[float] = field(default_factory=list)
    _alternatives: list[int | None] = field(default_factory=list)  # to each of the tokens
    _num_asked: int = 0  # tokens that the draft model is drafting now

    @property
    def is_asked(self) -> bool:
        """True if the draft model is drafting for the chain."""
        return self._num_asked > 0

    def begin(self, text_len: int) -> None:
        """Begins a new chain after a text of this length."""
        self._base_len, self._num_asked = text_len, 0
        self._tokens, self._probabilities, self._alternatives = [], [], []

    def follows(self, tokens: Sequence[int]) -> bool:
        """Returns whether the text `tokens` agrees with the chain, up to where the chain is known."""
        new = list(tokens[self._base_len :])
        is_within = len(new) <= len(self._tokens) + self._num_asked
        return is_within and new[: len(self._tokens)] == self._tokens[: len(new)]

    def rest(self, tokens: Sequence[int]) -> Continuation:
        """Returns the chain beyond the text `tokens`, up to a stop id; empty if the text left the chain."""
        if not self.follows(tokens):
            return Continuation()
        first = len(tokens) - self._base_len
        rest, stop_ids = self._tokens[first:], self.request.stop_ids
        length = next((at for at, token in enumerate(rest) if token in stop_ids), len(rest))
        return Continuation(tuple(rest[:length]), tuple(self._probabilities[first : first + length]))

    def alternatives(self, tokens: Sequence[int]) -> list[int | None]:
        """Returns an alternative to each token of the `rest`; None: there is none, or it would end the text."""
        first, stop_ids = len(tokens) - self._base_len, self.request.stop_ids
        return [None if other in stop_ids else other for other in self._alternatives[first:]]

    def ask(self, tokens: Sequence[int], permitted: int, least_probability: float) -> Wanted | None:
        """Returns the next request to the draft model; None: nothing to ask. The text `tokens` agrees with the chain.

        permitted: tokens beyond the text. least_probability: the verify node's least path probability.
        """
        if self._num_asked:
            return None
        self._forget(len(tokens) - self._base_len)
        path_probability, least_probability = prod(self._probabilities), max(least_probability, FLOOR)
        room = len(self.request.prompt) + self.request.max_tokens - len(tokens) - 1
        at_once = max(AT_ONCE, self.num_parallel) if self.request.verification == "match" else MAX_DRAFT
        length = min(at_once, min(permitted, MAX_DRAFT, room) - len(self._tokens))
        if self._has_ended or length <= 0 or path_probability < least_probability:
            return None
        self._num_asked = length
        return Wanted((*tokens, *self._tokens), length, least_probability / path_probability)

    def _forget(self, num_confirmed: int) -> None:
        """Removes leading tokens that are part of the text now."""
        del self._tokens[:num_confirmed], self._probabilities[:num_confirmed], self._alternatives[:num_confirmed]
        self._base_len += num_confirmed

    def extend(self, proposal: Proposed) -> bool:
        """Appends the draft model's answer. Returns False if nothing was asked."""
        if not self._num_asked:
            return False
        self._num_asked = 0
        self._tokens += proposal.tokens
        self._probabilities += proposal.probabilities or (1.0,) * len(proposal.tokens)
        self._alternatives += proposal.alternatives or (None,) * len(proposal.tokens)
        return True

    @property
    def _has_ended(self) -> bool:
        return bool(self._tokens) and self._tokens[-1] in self.request.stop_ids
