"""What a session drafts ahead of a verdict, on the hope that all of the draft in flight is accepted. No I/O, no clock.

Says for how many tokens the draft model is asked, makes the draft that assumes them, and tells from the verdict whether
it is the next draft now. Knows nothing about a session's states, or about what is sent when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.core.actions import Proposed, Request, Statistics
from draft_node.core.drafts.ahead_rate import AheadRate
from goodspeed.wire import odds as odds_codes
from goodspeed.wire.messages import Draft, TextDigest, Verdict


@dataclass(slots=True)
class Ahead:
    """The drafts that one session makes ahead; at most one is in flight, beside the draft that it follows."""

    request: Request
    statistics: Statistics
    rate: AheadRate  # at which drafts made ahead come true
    is_on: bool
    draft: Draft | None = None  # in flight
    draft_odds: float = 1.0  # that all of it is accepted

    def next_length(self, drafted: Sequence[int], length: int, text_len: int, odds: float) -> int:
        """Length of the next draft ahead, which follows `drafted` and one guessed token; 0: none.

        It is that of the draft in flight (`length`), since the next length is not known yet. It is 0 if the text would
        end before, or if the draft in flight is too unlikely (`odds`) to be accepted whole.
        """
        room = len(self.request.prompt) + self.request.max_tokens - text_len - len(drafted) - 2
        ends = any(token in self.request.stop_ids for token in drafted)
        hopeful = self.is_on and self.rate.is_worthwhile and odds >= self.rate.least
        return max(0, min(length, room)) if hopeful and drafted and not ends else 0

    def make(self, proposal: Proposed, drafted: Sequence[int], text_len: int, text: TextDigest) -> Draft | None:
        """The draft that assumes that all of `drafted` is accepted, and that the proposal's guess follows it."""
        if not proposal.tokens or proposal.guess is None or proposal.guess in self.request.stop_ids:
            return None
        assumed = (*drafted, proposal.guess)
        self.draft = Draft(
            session_id=proposal.session_id,
            epoch=proposal.epoch,
            round=proposal.round,
            base_len=text_len + len(assumed),
            base_digest=text.followed_by(assumed),
            tokens=proposal.tokens,
            proposal=proposal.proposal,
            drafting_s=proposal.drafting_s,
            assumes=True,
            odds=codes(proposal, len(proposal.tokens)),
            num_ngram=proposal.num_ngram,
        )
        self.draft_odds = proposal.odds
        self.statistics.num_ahead += 1
        return self.draft

    def clear(self) -> None:
        """None is in flight any more."""
        self.draft = None

    def look_back(self, verdict: Verdict, tokens: Sequence[int], text: TextDigest) -> Draft | None:
        """Returns the draft ahead if it is the next draft now: its base is the text, and no verdict answered it."""
        ahead = self.draft
        if ahead is None:
            if verdict.num_verified and verdict.source is None:
                accepted = verdict.num_accepted == verdict.num_verified
                self.rate.observe(self.statistics.acceptance_rate if accepted else 0.0)
            return None
        is_next = (len(tokens), text.of(tokens)) == (ahead.base_len, ahead.base_digest)
        came_true = is_next or verdict.round == ahead.round
        self.rate.observe(float(came_true))
        self.statistics.num_ahead_true += came_true
        return ahead if is_next and verdict.dropped != ahead.round else None


def codes(proposal: Proposed, length: int) -> bytes | None:
    """The odds of the first `length` tokens of a proposal, one byte each; None where they are not known, or none is."""
    chances = proposal.chances[:length] if proposal.chances is not None else ()
    return odds_codes.encode(chances) if chances else None
