"""Counters of the verify node since its start, for those who watch.

No I/O, no clock, no torch.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from goodspeed.serving.counts import ROUND_S, ROUND_TOKENS, Histogram
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.fields import DraftSource, RedirectReason
from verify_node.scheduler.commit import Moved
from verify_node.scheduler.round import Round
from verify_node.session.session import Session
from verify_node.slo.deadline import Cause, Deadline

MAX_JUDGED = 10_000
"""Complete texts with objectives that are remembered one by one."""


PromiseOutcome: TypeAlias = Literal["promised", "declined", "refused", "later"]
"""Decisions on a session that asked for a promise."""


class Judged(NamedTuple):
    """A text with objectives that was completed."""

    at: float
    tier: str
    cause: Cause | None  # of its being late; None: it was not


@dataclass(slots=True)
class Counts:
    """Over all clients; what each had of it stands in its `Client`."""

    num_prompt_tokens: int = 0  # of sessions that got their first tokens
    num_tokens: int = 0  # delivered
    drafted_by: Counter[DraftSource] = field(default_factory=Counter)  # tokens verified, by what drafted them
    accepted_by: Counter[DraftSource] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)  # drafts by how many of their tokens were accepted
    num_alternatives: int = 0  # of the verified: tokens of trees beside their first choices
    num_alternatives_accepted: int = 0
    num_looked_up: int = 0  # tokens of texts when they were first let into a round
    num_found: int = 0  # of these, those that were cached already
    num_preempted: int = 0
    num_repeated: int = 0  # verdicts sent again, because a draft, an Ack or an OpenSession came again
    num_failed: int = 0  # rounds that failed, as a whole
    violations: Counter[tuple[str, Cause]] = field(default_factory=Counter)  # complete texts that were late, by tier
    num_attained: Counter[str] = field(default_factory=Counter)  # complete texts that were not, by tier
    promises: Counter[tuple[str, PromiseOutcome]] = field(default_factory=Counter)  # decisions, by tier
    broken: Counter[tuple[str, Cause]] = field(default_factory=Counter)  # promised texts that were late, by tier
    redirects: Counter[RedirectReason] = field(default_factory=Counter)  # sessions sent to another replica
    judged: deque[Judged] = field(default_factory=lambda: deque(maxlen=MAX_JUDGED))  # the newest last
    round_s: Histogram = field(default_factory=lambda: Histogram(ROUND_S))
    round_tokens: Histogram = field(default_factory=lambda: Histogram(ROUND_TOKENS))

    def finished(self, done: Round, moved: Iterable[Moved], duration_s: float) -> None:
        """A round is done."""
        self.round_s.observe(duration_s)
        self.round_tokens.observe(done.num_tokens)
        for move in moved:
            self._moved(move)

    def _moved(self, move: Moved) -> None:
        client, num_tokens = move.session.client, len(move.taken)
        self.num_tokens += num_tokens
        client.count_tokens(num_tokens)
        if move.base_len == len(move.session.opened.prompt):
            self.num_prompt_tokens += move.base_len
        if num_drafted := move.num_verified:
            num_accepted, source = move.outcome.num_accepted, move.entry.source or "model"
            self.accepted[num_accepted] += 1
            client.count_draft(source, num_drafted, num_accepted)
            self.drafted_by[source] += num_drafted
            self.accepted_by[source] += num_accepted
        if move.session.finished and (deadline := move.session.deadline) is not None:
            self._judged(deadline, move.session)
        num_others, num_right = move.alternatives
        self.num_alternatives += num_others
        self.num_alternatives_accepted += num_right

    def looked_up(self, num_tokens: int, num_found: int) -> None:
        """A text of so many tokens is let into a round for the first time since it was opened."""
        self.num_looked_up += num_tokens
        self.num_found += num_found

    def decided(self, deadline: Deadline, outcome: PromiseOutcome) -> None:
        """Counts a decision on whether a session's objectives are promised."""
        self.promises[deadline.slo.tier or OTHER, outcome] += 1

    def _judged(self, deadline: Deadline, session: Session) -> None:
        """A text with objectives is complete."""
        tier, cause = deadline.slo.tier or OTHER, deadline.violation(session.round_trip_s)
        self.judged.append(Judged(deadline.at, tier, cause))
        if cause is None:
            self.num_attained[tier] += 1
        else:
            self.violations[tier, cause] += 1
            self.broken[tier, cause] += bool(session.promised)

    @property
    def num_drafts(self) -> int:
        """Drafts verified, with at least one token."""
        return self.accepted.total()

    @property
    def num_drafted(self) -> int:
        return self.drafted_by.total()

    @property
    def num_accepted(self) -> int:
        return self.accepted_by.total()

    def accepted_by_position(self) -> list[int]:
        """Drafts whose token at each position was accepted, up to the longest that ever was; at least the first."""
        longest = max(1, max(self.accepted, default=0))
        return [
            sum(number for length, number in self.accepted.items() if length > position) for position in range(longest)
        ]
