"""The drafts of a session that no verdict has answered yet: one, and beside it one made ahead of its verdict. No I/O.

Makes both, and tells what a verdict says about them. Knows nothing about a session's states, or about what is sent
when.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from draft_node.core.actions import Proposed
from draft_node.core.drafts.ahead import Ahead, codes
from goodspeed.wire.messages import Draft, TextDigest, Verdict


@dataclass(slots=True)
class InFlight:
    """The drafts in flight of one session; they are repeated byte for byte."""

    ahead: Ahead  # what is in flight beside the draft, on the hope that all of it is accepted
    draft: Draft | None = None
    tells_odds: bool = False  # the verify node understands `Draft.odds` and `Draft.num_ngram`
    _odds: float = 1.0  # that all of the draft is accepted
    _length: int = 0  # to which the draft counts
    _num_ngram: int = 0  # leading tokens of the draft that an n-gram index drafted
    _digest: TextDigest = field(default_factory=TextDigest)

    def __iter__(self) -> Iterator[Draft]:
        return (draft for draft in (self.draft, self.ahead.draft) if draft is not None)

    def clear(self) -> None:
        """They are answered, or nobody waits for an answer any more."""
        self.draft = None
        self.ahead.clear()

    def make(self, proposal: Proposed, tokens: Sequence[int], length: int) -> Draft:
        """The draft of at most `length` tokens that continues the text `tokens`."""
        told = self._told(proposal)
        return Draft(
            session_id=proposal.session_id,
            epoch=proposal.epoch,
            round=proposal.round,
            base_len=len(tokens),
            base_digest=self._digest.of(tokens),
            tokens=proposal.tokens[:length],
            proposal=proposal.proposal,
            drafting_s=proposal.drafting_s,
            odds=codes(told, length),
            num_ngram=min(told.num_ngram, length),
        )

    def _told(self, proposal: Proposed) -> Proposed:
        """What the verify node understands of a proposal."""
        return proposal if self.tells_odds else replace(proposal, chances=None, num_ngram=0)

    def put(self, draft: Draft, odds: float, length: int, num_ngram: int = 0) -> None:
        """This draft, of which `length` tokens count, is in flight from now on."""
        self.draft = draft
        self._odds = odds
        self._length = length
        self._num_ngram = num_ngram

    @property
    def drafted(self) -> tuple[int, ...]:
        """The draft's tokens that count."""
        return self.draft.tokens[: self._length] if self.draft is not None else ()

    def length_ahead(self, text_len: int) -> int:
        """Length of the next draft ahead, which follows `drafted` and one guessed token; 0: none."""
        return self.ahead.next_length(self.drafted, self._length, text_len, self._odds)

    def make_ahead(self, proposal: Proposed, text_len: int) -> Draft | None:
        """The draft ahead, in flight from now on; None: there is one, or nothing that it follows, or no use in it."""
        is_first = self.ahead.draft is None  # the verify node takes one draft for a round
        if not is_first or self.draft is None or proposal.round <= self.draft.round:
            return None
        return self.ahead.make(self._told(proposal), self.drafted, text_len, self._digest)

    def answered(self, verdict: Verdict, tokens: Sequence[int]) -> tuple[Draft, float] | None:
        """Clears what is in flight; returns the draft ahead, and its odds, if it is the next draft now."""
        ahead = self.ahead.look_back(verdict, tokens, self._digest)
        self.clear()
        return (ahead, self.ahead.draft_odds) if ahead is not None else None

    def num_ngram(self, verdict: Verdict) -> int:
        """Leading tokens of the draft that the verdict answers which an n-gram index drafted."""
        return self._num_ngram if self.draft is not None and self.draft.round == verdict.round else 0

    def accepted(self, verdict: Verdict, first: int, last: int) -> tuple[bool, ...]:
        """Tells for each position in [first, last) whether its token is an accepted one of those that were verified.

        A repeated verdict may begin before them; accepted tokens of earlier drafts are not told apart any more.
        """
        if verdict.source is not None and verdict.num_accepted:
            places = _accepted_places(verdict)
            return tuple(position in places for position in range(first, last))
        for draft in self:
            if draft.round == verdict.round and verdict.num_accepted:
                accepted = range(draft.base_len, draft.base_len + verdict.num_accepted)
                return tuple(position in accepted for position in range(first, last))
        return ()


def _accepted_places(verdict: Verdict) -> range:
    """Positions of the accepted tokens of a verdict on what was no Draft.

    They are its first ones, and the target's own token comes after them. One that is sent again may begin with tokens
    of verdicts before it, so they are found from its end.
    """
    num_before = max(0, len(verdict.tokens) - verdict.num_accepted - 1)
    first = verdict.base_len + num_before
    return range(first, first + verdict.num_accepted)
