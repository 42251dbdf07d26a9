"""A round's sampling entries in the form for both verification rules, and their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from goodspeed.errors import InvalidProposal
from goodspeed.exact import proposals
from goodspeed.exact.counts import TextCounts
from goodspeed.exact.masks import Words
from verify_node.model.match_sampling import Verified
from verify_node.scheduler.round import Entry, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEntry(Verified):
    """An entry that samples; its draft is empty if its proposal was invalid."""

    entry: Entry
    draft_probs: Tensor | None = None  # [num_drafted, vocab], ratio rule
    invalid: str = ""

    @classmethod
    def of(
        cls,
        entry: Entry,
        first_row: int,
        num_tokens: int,
        *,
        counts: TextCounts | None = None,
        allowed: Words | None = None,
        has_finite_keys: bool = False,
    ) -> "VerifiedEntry":
        """Decodes an entry's proposal under the ratio rule; if it is invalid, only the draft is dropped."""
        drafted = entry.tokens[len(entry.tokens) - entry.num_drafted :]
        draft_probs, invalid = None, ""
        if entry.verification == "ratio" and drafted:
            try:
                draft_probs = proposals.decode(entry.proposal or b"", len(drafted), num_tokens, drafted)
            except InvalidProposal as error:
                drafted, invalid = (), str(error)
                allowed = None if allowed is None else allowed[:1]
        return cls(
            first_row=first_row,
            base_len=entry.base_len,
            drafted=drafted,
            sampling=entry.sampling,
            parents=entry.parents,
            rules=entry.rules,
            counts=counts,
            allowed=allowed,
            banned_at=entry.banned_at if entry.stop_ids else None,
            has_finite_keys=has_finite_keys,
            entry=entry,
            draft_probs=draft_probs,
            invalid=invalid,
        )

    def outcome(self, accepted: Sequence[int], token: int, agreement: float, failed: str) -> Outcome:
        """Builds the outcome. accepted: accepted places in the draft, in order. token: the target's token after
        them."""
        if failed:
            return Outcome(self.entry.session_id, (), 0, 0.0, self.invalid, failed)
        tokens = (*(self.drafted[place] for place in accepted), token)
        return Outcome(self.entry.session_id, tokens, len(accepted), agreement, self.invalid)
