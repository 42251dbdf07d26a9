"""Accounts for each session's service, which is its time in rounds, and for its waits for KV pages.

Accounts are kept only for an order that uses more than arrivals.

A session's service is the whole duration of each round that it takes part in. So the queues and S_1 mean about the same
however many sessions share a round. Prefilling again after a preemption does not count: it is a cost of the order, not
a service to the text. In a turn only rounds that decide a token count, without the session's own prefill, so that no
session loses its pages between prefill and the first token.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary

from goodspeed.fair.estimators import smoothed
from goodspeed.fair.lengths import OutputLengths
from verify_node.scheduler.orders.base import AGING_S, Job
from verify_node.scheduler.orders.laps import FIRST_S, RateHistory
from verify_node.scheduler.round import Entry
from verify_node.session.session import Session

SMOOTHING = 0.1
"""Smoothing step of the duration of a round, for sessions without a round of their own."""

ROUND_S = 0.01
"""Assumed duration of a round before the first, in seconds."""

Claim: TypeAlias = tuple[int, float]
"""Strength of a session's claim to its pages, compared before its rank: the smallest is the strongest."""

ENTERED_OVERDUE, IN_FIRST_S, SERVED = 0, 1, 2
"""Kinds of claims: admitted because it had waited too long; less than S_1 of service in this turn; neither."""


@dataclass(slots=True)
class Account:
    """A session's service so far, and its latest wait for KV pages. A *turn* lasts while it has pages."""

    wait_began_at: float  # start of its latest wait for pages, which may be over
    attained_s: float = 0.0  # all service, without repeated prefill
    turn_s: float = 0.0  # time of deciding since it got its current pages
    deciding_s: float = 0.0  # time of deciding, in total
    num_decided: int = 0  # rounds that decided something
    num_prefilled: int = 0  # tokens of its text that were fed at least once
    entered_overdue: bool = False
    rates: RateHistory = field(default_factory=RateHistory)

    def enter(self, now: float) -> None:
        """Begins a turn: the session gets pages."""
        self.turn_s = 0.0
        self.entered_overdue = now - self.wait_began_at > AGING_S

    def leave(self, now: float) -> None:
        """Ends a turn: the session is preempted. A turn below S_1 counts as part of the wait before it."""
        if self.turn_s >= FIRST_S:
            self.wait_began_at = now

    def observe(self, entry: Entry, round_s: float, token_s: float) -> None:
        """Adds a finished round with this entry. round_s: its duration; token_s: its duration per token."""
        end = entry.start + len(entry.tokens)
        first_new = max(entry.start, self.num_prefilled)
        if first_new < end:
            self.attained_s += round_s - token_s * (first_new - entry.start)
        self.num_prefilled = max(self.num_prefilled, entry.base_len)
        if entry.samples:
            deciding_s = round_s - token_s * entry.num_prefill
            self.num_decided += 1
            self.deciding_s += deciding_s
            self.turn_s += deciding_s

    @property
    def claim(self) -> Claim:
        if self.turn_s >= FIRST_S:
            return SERVED, 0.0
        return (ENTERED_OVERDUE, self.wait_began_at) if self.entered_overdue else (IN_FIRST_S, 0.0)


class Accounts:
    """The accounts of open sessions; estimates over all sessions of output lengths by client and a round's time."""

    def __init__(self) -> None:
        self._accounts: WeakKeyDictionary[Session, Account] = WeakKeyDictionary()
        self._lengths: dict[str, OutputLengths] = {}
        self._round_s = 0.0

    def of(self, session: Session) -> Account:
        """Returns the session's account; creates it at the first call, before the session's first round."""
        known = self._accounts.get(session)
        if known is None:
            known = self._accounts[session] = Account(session.arrived_at)
        return known

    def opened(self, session: Session, before: Session, now: float, *, keeps_pages: bool) -> None:
        """Continues the account of a reopened session if its text continues: a bad link must not cost it its place.

        before: the previous session of its id. keeps_pages: its pages are not freed.
        """
        account = self._accounts.pop(before, None)
        if account is not None and session.goes_on(before):
            self._accounts[session] = account
            if not keeps_pages:
                account.leave(now)

    def observe_round(self, seconds: float) -> None:
        """Smooths the mean duration of a round for the sessions that it decided something for, without own prefill."""
        self._round_s = smoothed(self._round_s, seconds, SMOOTHING)

    def end(self, session: Session) -> None:
        """Closes the account of a complete text; its length updates the expected length of its client's texts."""
        self._accounts.pop(session, None)
        lengths = self._lengths.setdefault(session.client.name, OutputLengths())
        num_prompt = len(session.opened.prompt)
        lengths.observe(len(session.tokens) - num_prompt, num_prompt)

    def keep_lengths(self, clients: Container[str]) -> None:
        self._lengths = {name: one for name, one in self._lengths.items() if name in clients}

    def job(self, session: Session, *, has_place: bool, recompute_s: float) -> Job:
        """Returns the session as a job. has_place: it has pages. recompute_s: time to prefill its text again."""
        account, num_prompt = self.of(session), len(session.opened.prompt)
        lengths = self._lengths.get(session.client.name) or OutputLengths()
        return Job(
            job_id=session.session_id,
            arrived_at=session.arrived_at,
            waits_since=None if has_place else account.wait_began_at,
            attained_s=account.attained_s,
            turn_s=account.turn_s if has_place else 0.0,
            remaining_tokens=lengths.remaining(
                len(session.tokens) - num_prompt, num_prompt, session.limit - num_prompt
            ),
            rates=account.rates.rates,
            num_drafted=account.rates.num_drafted,
            round_s=account.deciding_s / account.num_decided if account.num_decided else self._round_s or ROUND_S,
            recompute_s=recompute_s,
        )
