"""Counters since the start, for monitoring.

They decide nothing.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from goodspeed.drafting.sources import MODEL, Source
from goodspeed.serving.measuring.counts import ROUND_S, ROUND_TOKENS, Histogram
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.fields import RedirectReason
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.round import Round
from verify_node.session.deadline import Cause, Deadline
from verify_node.session.session import Session

PromiseOutcome: TypeAlias = Literal["promised", "declined", "refused", "later"]
"""Decisions on a session that asked for a promise."""


@dataclass
class WallTime:
    """Parts of the verify node's time in seconds, as in the paper's Fig. 3 but finer. Each second is in one part."""

    receive: float = 0.0  # waiting until a round starts, also after a failed one; with the messages handled meanwhile
    forward: float = 0.0  # with the hand-over between threads
    verify: float = 0.0  # with the drafting of the verify node's own draft model
    schedule: float = 0.0  # handle messages unread at the end of the forward pass, plan, observe, allocate
    send: float = 0.0  # a round's verdicts, and its report


@dataclass(slots=True)
class Counts:
    """Totals over all clients; `Client` has the totals of each."""

    num_prompt_tokens: int = 0  # of sessions that got their first tokens
    num_tokens: int = 0  # delivered
    drafted_by: Counter[Source] = field(default_factory=Counter)  # verified tokens, by their draft source
    accepted_by: Counter[Source] = field(default_factory=Counter)
    num_own_passes: int = 0  # passes of the verify node's draft model
    own_s: float = 0.0  # time of these passes
    accepted: Counter[int] = field(default_factory=Counter)  # drafts by number of accepted tokens
    num_alternatives: int = 0  # verified tokens of trees that are not first choices
    num_alternatives_accepted: int = 0
    num_looked_up: int = 0  # tokens of texts when they first entered a round
    num_found: int = 0  # of these, tokens that were already cached
    num_preempted: int = 0
    num_repeated: int = 0  # verdicts sent again, because a draft, an Ack or an OpenSession was repeated
    num_failed: int = 0  # rounds that failed as a whole
    violations: Counter[tuple[str, Cause]] = field(default_factory=Counter)  # completed texts that were late, by tier
    num_attained: Counter[str] = field(default_factory=Counter)  # completed texts that were in time, by tier
    promises: Counter[tuple[str, PromiseOutcome]] = field(default_factory=Counter)  # decisions, by tier
    broken: Counter[tuple[str, Cause]] = field(default_factory=Counter)  # promised texts that were late, by tier
    redirects: Counter[RedirectReason] = field(default_factory=Counter)  # sessions redirected to another replica
    round_s: Histogram = field(default_factory=lambda: Histogram(ROUND_S))
    round_tokens: Histogram = field(default_factory=lambda: Histogram(ROUND_TOKENS))
    wall: WallTime = field(default_factory=WallTime)  # the daemon measures it

    def finished(self, done: Round, moved: Iterable[Moved], duration_s: float) -> None:
        self.round_s.observe(duration_s)
        self.round_tokens.observe(done.num_tokens)
        for move in moved:
            self._moved(move)

    def _moved(self, move: Moved) -> None:
        client, num_known = move.session.client, move.session.num_known
        num_tokens = len(range(max(move.base_len, num_known), move.base_len + len(move.taken)))  # none twice
        self.num_tokens += num_tokens
        client.count_tokens(num_tokens)
        if num_known <= move.base_len == len(move.session.opened.prompt):
            self.num_prompt_tokens += move.base_len
        if num_drafted := move.num_verified:
            num_accepted, source = move.num_accepted, move.entry.source or MODEL
            self.accepted[num_accepted] += 1
            client.count_draft(source, num_drafted, num_accepted)
            self.drafted_by[source] += num_drafted
            self.accepted_by[source] += num_accepted
        deadline = move.session.deadline
        if move.session.finished and deadline is not None and not move.session.was_judged:
            self._judged(deadline, move.session)
        num_others, num_right = move.num_alternatives
        self.num_alternatives += num_others
        self.num_alternatives_accepted += num_right

    def looked_up(self, num_tokens: int, num_found: int) -> None:
        """Counts a text's first round since it was opened. num_found: tokens, of num_tokens, that were cached."""
        self.num_looked_up += num_tokens
        self.num_found += num_found

    def decided(self, deadline: Deadline, outcome: PromiseOutcome) -> None:
        self.promises[deadline.slo.tier or OTHER, outcome] += 1

    def _judged(self, deadline: Deadline, session: Session) -> None:
        tier, cause = deadline.slo.tier or OTHER, deadline.violation(session.round_trip_s)
        if cause is None:
            self.num_attained[tier] += 1
        else:
            self.violations[tier, cause] += 1
            self.broken[tier, cause] += bool(session.promised)

    @property
    def num_drafts(self) -> int:
        """Verified drafts of at least one token."""
        return self.accepted.total()

    @property
    def num_drafted(self) -> int:
        return self.drafted_by.total()

    @property
    def num_accepted(self) -> int:
        return self.accepted_by.total()

    def accepted_by_position(self) -> list[int]:
        """Counts the drafts accepted at each position, up to the longest accepted one; at least one position."""
        longest = max(1, max(self.accepted, default=0))
        return [
            sum(number for length, number in self.accepted.items() if length > position) for position in range(longest)
        ]
