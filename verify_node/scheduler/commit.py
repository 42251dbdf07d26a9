"""Applies a finished round to its sessions: commits tokens. No I/O, no clock, no torch."""

from collections.abc import Sequence

from msgspec import Struct

from goodspeed.drafting.sources import MODEL, TRAITS, is_awaited
from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact import trees
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Verdict
from verify_node.clients.calibration import ClaimedOf
from verify_node.scheduler.round import Entry, Outcome
from verify_node.session.draft_tokens import DraftTokens
from verify_node.session.session import Session


class Moved(Struct, frozen=True):
    """A session for which a round decided tokens, or the end of its text."""

    session: Session
    entry: Entry
    outcome: Outcome
    base_len: int
    taken: tuple[int, ...]
    unverified: DraftTokens | None = None  # a draft for this text, if the round verified none
    num_awaited: int | None = None  # tokens that might be drafted, where rounds wait for all drafts

    @property
    def num_verified(self) -> int:
        return 0 if self.outcome.invalid else self.entry.num_drafted

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that were accepted and delivered: none from the text's end on."""
        return min(self.outcome.num_accepted, len(self.taken))

    @property
    def num_observed(self) -> int:
        """Tokens that update the acceptance rate: a draft model's, and all tokens that the ratio rule decided.

        N-gram drafts count only where rounds wait for all drafts. There a draft that was right, but ended before its
        permission, or did not come, counts as wrong in its next token: else a client that proposes little would be
        permitted much, and so others little.
        """
        is_short = self.num_awaited is not None and self.entry.num_drafted < self.num_awaited
        ended_early = is_short and self._num_first_accepted == self._num_counted and not self.session.finished
        return self._num_counted + ended_early

    @property
    def _num_counted(self) -> int:
        entry = self.entry
        counts = is_awaited(entry.source) or entry.drafted.proposal is not None or self.num_awaited is not None
        return len(entry.first_choices) if counts else 0

    @property
    def num_first_choices(self) -> tuple[int, int]:
        """First choices accepted, and first choices drafted, up to the text's end, which is itself not delivered."""
        return self._num_first_accepted, min(self._num_counted, len(self.taken) + 1)

    @property
    def _num_first_accepted(self) -> int:
        """First choices accepted up to and including the text's end; tokens beyond it do not count."""
        path, num_accepted = self.outcome.path, self.outcome.num_accepted
        if path is not None:
            pairs = enumerate(zip(path, self.entry.first_choices, strict=False))
            num_accepted = next((place for place, (node, first) in pairs if node != first), len(path))
        return min(num_accepted, len(self.taken) + 1)

    @property
    def claims(self) -> list[tuple[ClaimedOf, bytes, int]]:
        """Claims to calibrate, as (source, codes of probabilities, number of accepted tokens).

        Tokens after the text's end do not count: they are drafted freely, and accepted at no cost. If no token of a
        draft was verified, the target's token shows whether its first one was right. Without this, claims that were
        once wrong, and so are not worth verifying, would never be tried again.
        """
        if self.unverified is not None and self.unverified.codes and self.outcome.tokens:
            first, is_right = self.unverified, self.unverified.tokens[0] == self.outcome.tokens[0]
            return [(first.source, first.codes[:1], int(is_right))]
        source = self.entry.source
        if source is None or TRAITS[source].is_certain:
            return []
        codes = self.entry.drafted.codes[: min(self.entry.num_drafted, len(self.taken) + 1)]
        if not codes:
            return []  # nothing was claimed
        if self.entry.parents is not None:
            return self._claims_of_tree(self.entry.parents)
        return [(source, codes, self._num_first_accepted)]

    def _claims_of_tree(self, parents: Sequence[int]) -> list[tuple[ClaimedOf, bytes, int]]:
        """Claims for all tokens that follow the base or an accepted token: the target's draw there is known."""
        path = self.outcome.path or ()
        tried = (trees.BASE, *path)[: len(self.taken) + 1]
        claims: list[tuple[ClaimedOf, bytes, int]] = []
        for at in tried:
            for place, node in enumerate(node for node, parent in enumerate(parents) if parent == at):
                source: ClaimedOf = "alternative" if place else self.entry.source or MODEL
                claims.append((source, self.entry.drafted.codes[node : node + 1], int(node in path)))
        return claims

    @property
    def num_alternatives(self) -> tuple[int, int]:
        """Tokens of a tree that are not first choices: number verified, and number accepted."""
        if self.entry.parents is None:
            return 0, 0
        first, delivered = self.entry.first_choices, (self.outcome.path or ())[: len(self.taken)]
        return self.entry.num_drafted - len(first), len({*delivered} - {*first})

    def verdict(self, may_draft: int, least_probability: int = probabilities.LEAST) -> Verdict:
        """Returns the message for the draft node. may_draft, least_probability: as in `Verdict`."""
        session = self.session
        return Verdict(
            session_id=session.session_id,
            epoch=session.epoch,
            base_len=self.base_len,
            tokens=self.taken,
            num_verified=self.num_verified,
            num_accepted=self.num_accepted,
            may_draft=may_draft,
            finish_reason=session.finish_reason,
            least_probability=least_probability,
            source=None if self.entry.source is None else TRAITS[self.entry.source].told_as,
            promised=session.promised,
            logprobs=session.logprobs_from(self.base_len),
            num_cached=(session.num_cached or 0) if session.was_told_nothing else 0,
            prompt_logprobs=session.told_of_prompt if session.last_verdict is None else None,
        )


def commit(
    session: Session,
    entry: Entry,
    outcome: Outcome,
    pool: PagePool,
    passed_over: DraftTokens | None = None,
    *,
    is_barrier: bool = False,
) -> Moved:
    """Commits the decided tokens, and frees the KV cache of rejected ones, or of the whole text at its end.

    Publishes full pages of the text, which contain no rejected tokens. The pages of a finished text that shares with no
    other session are withdrawn. passed_over: its draft when the round was packed, if no token of it was chosen.
    is_barrier: rounds wait for all drafts.
    """
    base_len = len(session.tokens)
    unverified = None
    if entry.verification == "match" and not entry.num_drafted:
        newest = session.drafts.newest
        unverified = newest if newest is not None and newest.codes else passed_over
    drafts = session.drafts
    num_awaited = drafts.may_draft if is_barrier else None
    taken = session.commit(outcome.tokens, outcome.logprobs)
    drafts.must_follow(outcome.forced)
    if outcome.own is not None and outcome.own.tokens and not session.finished:
        drafts.take_own(outcome.own)
    pool.truncate(session.session_id, min(entry.base_len + outcome.num_accepted, len(session.tokens)))
    publish(session, pool)
    if session.finished:
        if not session.shares:
            pool.forget(session.session_id, session.prefix_scope, session.tokens)
        pool.free(session.session_id)
    return Moved(session, entry, outcome, base_len, taken, unverified, num_awaited)


def publish(session: Session, pool: PagePool) -> None:
    """Publishes the pages prefilled so far in the prefix cache; the text must be at least as long as its KV cache."""
    pool.publish(session.session_id, session.prefix_scope, session.tokens)
