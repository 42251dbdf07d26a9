"""A round's sampling entries in the form for both verification rules, and their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from goodspeed.errors import InvalidProposal
from goodspeed.exact import proposals
from goodspeed.exact.logits.masks import Words
from goodspeed.exact.logits.token_counts import TextCounts
from verify_node.scheduler.round import Entry, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEntry:
    """An entry that samples: the target draws at its base, and after each of its drafted tokens."""

    entry: Entry
    first_row: int  # row of logits that decides the token at the base; the other rows follow
    drafted: tuple[int, ...] = ()  # empty if its proposal was invalid
    draft_probs: Tensor | None = None  # [num_drafted, vocab], ratio rule
    invalid: str = ""
    counts: TextCounts | None = None  # of the committed text with its prompt, if its rules read the text
    allowed: Words | None = None  # tokens that its constraint allows each row [num_drafted + 1, num_words]
    has_finite_keys: bool = False  # in the KV cache, even where logits are not finite

    def decoded(self, num_tokens: int) -> "VerifiedEntry":
        """Returns it with its proposal decoded under the ratio rule; if that is invalid, only the draft is dropped."""
        if self.entry.verification != "ratio" or not self.drafted:
            return self
        try:
            probs = proposals.decode(self.entry.drafted.proposal or b"", len(self.drafted), num_tokens, self.drafted)
        except InvalidProposal as error:
            allowed = None if self.allowed is None else self.allowed[:1]
            return replace(self, drafted=(), invalid=str(error), allowed=allowed)
        return replace(self, draft_probs=probs)

    def outcome(self, accepted: Sequence[int], token: int, agreement: float, failed: str) -> Outcome:
        """Builds the outcome. accepted: places in the draft, in order. token: the target's token after them."""
        if failed:
            return Outcome(self.entry.session_id, (), 0, 0.0, self.invalid, failed)
        tokens = (*(self.drafted[place] for place in accepted), token)
        return Outcome(self.entry.session_id, tokens, len(accepted), agreement, self.invalid)
