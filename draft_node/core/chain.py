"""What the draft model drafts unasked while its session goes on: a chain of tokens after the text. No I/O.

Nobody waits for it: a round verifies what is there when it is packed. As long as the text goes on as the chain does,
the model drafts on at the chain's end; when the text leaves it, a new chain begins at the text's end. So the model
drafts all the time that the target takes for its rounds. Knows nothing about a session's states or about messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from draft_node.core.actions import Proposed, Request
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.messages import MAX_OFFER

AT_ONCE = 4
"""Tokens that the draft model is asked for at once. Each answer takes both nodes' time for a message, and a model that
drafts more at once learns later that the text went on otherwise. Measured with 1, 2, 3 and 5: no difference."""

LEAST_ODDS = 0.03
"""The chain grows no more while the odds that all of it is accepted are below, however little a token costs."""


class Wanted(NamedTuple):
    """What the draft model is to be asked for next."""

    tokens: tuple[int, ...]  # the text, and the chain after it
    length: int
    least_odds: float  # of what it drafts: below, nothing more is worth drafting


@dataclass(slots=True)
class Chain:
    """The chain of one session."""

    request: Request
    _base_len: int = 0  # of the text that it follows
    _tokens: list[int] = field(default_factory=list)
    _odds: list[float] = field(default_factory=list)
    _is_asked: bool = False  # the draft model makes its next tokens

    def begin(self, text_len: int) -> None:
        """A new chain begins after a text of this length."""
        self._base_len, self._tokens, self._odds, self._is_asked = text_len, [], [], False

    def follows(self, tokens: Sequence[int]) -> bool:
        """Whether the text `tokens` goes on as the chain does, as far as that is known."""
        new = list(tokens[self._base_len :])
        is_known = len(new) <= len(self._tokens) or self._is_asked
        return is_known and new[: len(self._tokens)] == self._tokens[: len(new)]

    def rest(self, tokens: Sequence[int]) -> Continuation:
        """What it says beyond the text `tokens`, before the text's end; nothing if the text goes on otherwise."""
        if not self.follows(tokens):
            return Continuation()
        first = len(tokens) - self._base_len
        rest, stop_ids = self._tokens[first:], self.request.stop_ids
        length = next((at for at, token in enumerate(rest) if token in stop_ids), len(rest))
        return Continuation(tuple(rest[:length]), tuple(self._odds[first : first + length]))

    def ask(self, tokens: Sequence[int], permitted: int, least_odds: float) -> Wanted | None:
        """What the draft model is to be asked for after the text `tokens`, which the chain follows; None: nothing.

        permitted: tokens beyond the text; least_odds: of the verify node.
        """
        first = len(tokens) - self._base_len
        path_odds, least_odds = prod(self._odds[first:]), max(least_odds, LEAST_ODDS)
        room = len(self.request.prompt) + self.request.max_tokens - len(tokens) - 1
        length = min(AT_ONCE, min(permitted, MAX_OFFER, room) - (len(self._tokens) - first))
        if self._is_asked or self._has_ended or length <= 0 or path_odds < least_odds:
            return None
        self._is_asked = True
        return Wanted((*tokens[: self._base_len], *self._tokens), length, least_odds / path_odds)

    def extend(self, proposal: Proposed) -> bool:
        """The draft model's answer continues it, if it was asked. Returns whether there are more tokens now."""
        if not self._is_asked:
            return False
        self._is_asked = False
        self._tokens += proposal.tokens
        self._odds += proposal.chances or (1.0,) * len(proposal.tokens)
        return bool(proposal.tokens)

    @property
    def _has_ended(self) -> bool:
        return bool(self._tokens) and self._tokens[-1] in self.request.stop_ids
