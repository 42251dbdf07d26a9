"""What crosses the core's border: messages to send, and what a round came to (the target's decision for one entry, and
the session that it moved). No tensors."""

from collections.abc import Sequence
from math import isfinite

from msgspec import Struct

from goodspeed.exact import trees
from goodspeed.fair.estimators import ROUNDING
from goodspeed.wire import odds
from goodspeed.wire.messages import DownMessage, TokenLogprobs, Verdict
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

    @property
    def num_verified(self) -> int:
        return 0 if self.outcome.invalid else self.entry.num_drafted

    @property
    def observation(self) -> Observation:
        """What a draft model drafted counts, and whatever the ratio rule decided on; guesses of an index do not."""
        num_tokens = len(self.taken)
        counts = self.entry.source == "model" or self.entry.proposal is not None
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
    def claims(self) -> list[tuple[ClaimedOf, bytes, int]]:
        """Codes of the odds that were claimed for tokens up to the first rejection, by source; how many were accepted.

        What follows the text's end does not count: it is drafted at will, and accepted at no cost.
        """
        source, codes = self.entry.source, self.entry.odds[: min(self.num_verified, len(self.taken) + 1)]
        if self.entry.is_forced or source is None or not codes:
            return []  # nothing was claimed
        if self.entry.parents is not None:
            return self._claims_of_tree(self.entry.parents)
        return [(source, codes, self._num_accepted)]

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

    def verdict(self, may_draft: int, least_odds: int = odds.LEAST) -> Verdict:
        """The message with the decision."""
        session = self.session
        return Verdict(
            session_id=session.session_id,
            epoch=session.epoch,
            base_len=self.base_len,
            tokens=self.taken,
            num_verified=self.num_verified,
            num_accepted=self.outcome.num_accepted,
            may_draft=may_draft,
            finish_reason=session.finish_reason,
            least_odds=least_odds,
            source=self.entry.source,
            promised=session.promised,
            logprobs=session.logprobs_from(self.base_len),
            num_cached=(session.num_cached or 0) if session.was_told_nothing else 0,
            prompt_logprobs=session.told_of_prompt if session.last_verdict is None else None,
        )
