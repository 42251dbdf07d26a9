"""What crosses the core's border: messages to send, and what a round came to (the target's decision for one entry, and
the session that it moved). No tensors."""

from collections.abc import Sequence
from math import isfinite

from msgspec import Struct

from goodspeed.exact import trees
from goodspeed.fair.estimators import ROUNDING
from goodspeed.fair.policies.cycles import in_time, willing
from goodspeed.wire import odds
from goodspeed.wire.fields import DraftSource
from goodspeed.wire.messages import DownMessage, Draft, TokenLogprobs, Verdict
from verify_node.packing.round import Entry
from verify_node.rounds.scheduler import Observation
from verify_node.session.calibration import ClaimedOf
from verify_node.session.session import Session


class Send(Struct, frozen=True):
    """The core's only kind of action: a message for a peer."""

    peer_id: bytes
    message: DownMessage


class Decisions(Struct, frozen=True):
    """What the target decided at each drafted position, also after the first rejection; in a tree by first choices."""

    agreed: tuple[bool, ...]
    ratios: tuple[float, ...] = ()  # min(1, p/q), under the ratio rule


class Outcome(Struct, frozen=True):
    """What came of one entry: if it samples, the accepted tokens and one more; logprobs of its prompt, if wanted."""

    session_id: bytes
    tokens: tuple[int, ...]
    num_accepted: int
    agreement: float  # sum over the drafted positions of Eq. (3)'s indicator, or under the ratio rule of its mean
    invalid: str = ""  # why the proposal was not used
    failed: str = ""  # why nothing could be decided: the session cannot go on
    decisions: Decisions | None = None  # only for a recording
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of tokens, where the entry wants them
    evidence: tuple[float, ...] = ()  # of the drafted tokens against what was sent with them, under the ratio rule
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the entry's `prompt_rows`
    forced: tuple[int, ...] = ()  # what must follow the tokens, by the form that the output is to keep
    path: tuple[int, ...] | None = None  # places of the accepted tokens in a tree; None: the first of a chain
    breaks_form: bool = False  # whether it failed because of the form that the output is to keep

    def is_possible(self, num_drafted: int) -> bool:
        """Whether estimates can learn from it; num_drafted: positions that `agreement` is summed over."""
        most = num_drafted * (1.0 + ROUNDING)
        return 0.0 <= self.agreement <= most and all(map(isfinite, self.evidence))

    @property
    def offsets(self) -> Sequence[int]:
        """The row of logits that each token was drawn from, counted from the first row of its entry."""
        return range(len(self.tokens)) if self.path is None else [0, *(node + 1 for node in self.path)]


class Moved(Struct, frozen=True):
    """A session for which a round decided something: tokens, or the end of its text."""

    session: Session
    entry: Entry
    outcome: Outcome
    base_len: int
    taken: tuple[int, ...]
    answered: Draft | None

    @property
    def num_verified(self) -> int:
        return 0 if self.outcome.invalid else self.entry.num_drafted

    @property
    def observation(self) -> Observation:
        """Every Draft counts, whoever drafted it, and what a draft model offers: n-gram offers do not."""
        num_tokens = len(self.taken)
        counts = self.answered is not None or self.entry.source == "model"
        num_drafted = len(self.entry.first_choices) if counts else 0
        return Observation(self.session, self.outcome.agreement, num_drafted, num_tokens, self._num_accepted)

    @property
    def _num_accepted(self) -> int:
        """First choices accepted up to the text's end, and that; nothing beyond it was asked for."""
        path, num_accepted = self.outcome.path, self.outcome.num_accepted
        if path is not None:
            pairs = enumerate(zip(path, self.entry.first_choices, strict=False))
            num_accepted = next((place for place, (node, first) in pairs if node != first), len(path))
        return min(num_accepted, len(self.taken) + 1)

    @property
    def parts(self) -> list[tuple[DraftSource, int, int]]:
        """What was verified, by source: how many tokens, and how many of them were accepted."""
        num_verified, num_accepted = self.num_verified, self.outcome.num_accepted
        first = min(self.entry.num_ngram, num_verified)
        parts: list[tuple[DraftSource, int, int]] = []
        if first:
            parts.append((self.entry.source or "ngram", first, min(num_accepted, first)))
        if num_verified > first:
            parts.append(("model", num_verified - first, max(0, num_accepted - first)))
        return parts

    @property
    def claims(self) -> list[tuple[ClaimedOf, bytes, int]]:
        """Codes of the odds that were claimed for tokens up to the first rejection, by source; how many were accepted.

        What follows the text's end does not count: it is drafted at will, and accepted at no cost.
        """
        if self.entry.is_forced:
            return []  # nothing was claimed
        if self.entry.parents is not None:
            return self._claims_of_tree(self.entry.parents)
        codes, num_accepted = self.entry.odds[: min(self.num_verified, len(self.taken) + 1)], self._num_accepted
        first = min(self.entry.num_ngram, len(codes))
        claims: list[tuple[ClaimedOf, bytes, int]] = []
        if first:
            claims.append((self.entry.source or "ngram", codes[:first], min(num_accepted, first)))
        if first <= num_accepted and first < len(codes):  # nothing is known after a rejection
            claims.append(("model", codes[first:], num_accepted - first))
        return claims

    def _claims_of_tree(self, parents: Sequence[int]) -> list[tuple[ClaimedOf, bytes, int]]:
        """The claims for all tokens after the base or an accepted one: what the target drew there is known."""
        path = self.outcome.path or ()
        tried = (trees.BASE, *path)[: len(self.taken) + 1]
        claims: list[tuple[ClaimedOf, bytes, int]] = []
        for at in tried:
            for place, node in enumerate(node for node, parent in enumerate(parents) if parent == at):
                source: ClaimedOf = "alternative" if place else self.entry.source or "model"
                claims.append((source, self.entry.odds[node : node + 1], int(node in path)))
        return claims

    @property
    def alternatives(self) -> tuple[int, int]:
        """Tokens of a tree beside the first choices of its chain: how many, and how many of them were accepted."""
        first = self.entry.first_choices
        return self.entry.num_drafted - len(first), len({*(self.outcome.path or ())} - {*first})

    def hope(self, round_s: float) -> float:
        """Probability that the next draft was made ahead of this verdict, if the draft node drafts ahead at all."""
        session, num_drafted = self.session, self.entry.num_drafted
        if self.answered is None or num_drafted < len(self.answered.tokens):
            return 0.0  # it was cut, so what was made ahead assumed more
        if not (session.is_drafting and 0 < num_drafted == self.outcome.num_accepted):
            return 0.0
        alpha = session.acceptance.value
        ahead_s = session.client.draft_s_per_token * (num_drafted + 2)
        timely = in_time(ahead_s, round_s + (0.0 if self.answered.assumes else session.round_trip_s))
        return float(alpha * willing(alpha ** (num_drafted + 1)) * timely)

    def verdict(
        self, next_length: int, dropped: int | None = None, least_odds: int = odds.LEAST, may_draft: int = 0
    ) -> Verdict:
        """The message with the decision. What an older release does not know is left out of it."""
        knows_odds = "odds" in self.session.client.capabilities
        tells_cached = "prefix_cache" in self.session.client.capabilities and self.session.was_told_nothing
        return Verdict(
            session_id=self.session.session_id,
            epoch=self.session.epoch,
            round=self.entry.draft_round,
            base_len=self.base_len,
            tokens=self.taken,
            num_verified=self.num_verified,
            num_accepted=self.outcome.num_accepted,
            next_length=next_length,
            finish_reason=self.session.finish_reason,
            logprobs=self.session.logprobs_from(self.base_len),
            dropped=dropped,
            least_odds=least_odds if knows_odds else odds.LEAST,
            source=self.entry.source if knows_odds else None,
            prompt_logprobs=self.session.told_of_prompt if self.session.last_verdict is None else None,
            may_draft=may_draft,
            num_cached=(self.session.num_cached or 0) if tells_cached else 0,
        )
