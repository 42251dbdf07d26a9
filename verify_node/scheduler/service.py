"""Accounts of the rounds' time that each session has had, and of its wait for KV pages.

Service is time in which a session is served: the whole time of each round that it takes part in, as it is at a draft
node's line, so that the queues and S_1 mean about the same however many share a round. Reading again what was read
before it lost its memory is no service to a text, but the price of the order: its part of a round's time, by tokens, is
not counted. Only deciding counts for a turn, without the part in which the session itself reads, so that nobody loses
memory between reading and the first token that reading is for.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from goodspeed.fair.estimators import smoothed
from goodspeed.fair.lengths import OutputLengths
from verify_node.scheduler.laps import FIRST_S, RateHistory
from verify_node.scheduler.order import AGING_S, Job
from verify_node.scheduler.round import Entry
from verify_node.session.session import Session

SMOOTHING = 0.1
"""Of the time that a round takes, for those that have had none."""

ROUND_S = 0.01
"""That time before any round."""


Claim: TypeAlias = tuple[int, float]
"""Strength of a session's claim to its pages, before its rank counts: the smallest one is the strongest.

It counts where the order ages."""

ENTERED_OVERDUE, IN_FIRST_S, SERVED = 0, 1, 2
"""Kinds of claims: it was admitted because it had waited too long; it has had less than S_1 in this turn; neither."""


@dataclass(slots=True)
class Account:
    """One session's."""

    session: Session
    arrived_at: float
    wait_began_at: float  # of its last wait for memory, which may be over
    attained_s: float = 0.0  # all that it was served, but for reading again
    turn_s: float = 0.0  # deciding, since it was given the memory that it has
    deciding_s: float = 0.0  # deciding, in all
    num_decided: int = 0  # rounds that decided something
    num_read: int = 0  # tokens of its text that were fed once
    entered_overdue: bool = False
    rates: RateHistory = field(default_factory=RateHistory)

    def enter(self, now: float) -> None:
        """The session is given pages."""
        self.turn_s = 0.0
        self.entered_overdue = now - self.wait_began_at > AGING_S

    def leave(self, now: float) -> None:
        """The session is preempted. A turn that brought less than S_1 counts as part of the wait before it."""
        if self.turn_s >= FIRST_S:
            self.wait_began_at = now

    def observe(self, entry: Entry, round_s: float, token_s: float) -> None:
        """A round is done in which it had this part. round_s: its time; token_s: that by token."""
        end = entry.start + len(entry.tokens)
        first_new = max(entry.start, self.num_read)
        if first_new < end:
            self.attained_s += round_s - token_s * (first_new - entry.start)
        self.num_read = max(self.num_read, entry.base_len)
        if entry.samples:
            deciding_s = round_s - token_s * num_only_read(entry)
            self.num_decided += 1
            self.deciding_s += deciding_s
            self.turn_s += deciding_s

    def observe_draft(self, num_accepted: int, num_drafted: int) -> None:
        """So many tokens of a draft were accepted."""
        self.rates.observe(num_accepted, num_drafted)

    @property
    def claim(self) -> Claim:
        """To the memory that it has."""
        if self.turn_s >= FIRST_S:
            return SERVED, 0.0
        return (ENTERED_OVERDUE, self.wait_began_at) if self.entered_overdue else (IN_FIRST_S, 0.0)


def num_only_read(entry: Entry) -> int:
    """Tokens of a session's part of a round before those that decide something."""
    return len(entry.tokens) - entry.num_drafted - 1


class Accounts:
    """By session, and what was learned from all: lengths by client, and the time of a round.

    An id may be used again, so an account is that of the session that it was begun for, and of no other.
    """

    def __init__(self) -> None:
        self._accounts: dict[bytes, Account] = {}
        self._lengths: dict[str, OutputLengths] = {}
        self._round_s = 0.0

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, session: Session) -> Account:
        """Begins when it is first asked for, which is before the session's first round."""
        known = self._accounts.get(session.session_id)
        if known is None or known.session is not session:
            known = Account(session, session.ready_since, session.ready_since)
            self._accounts[session.session_id] = known
        return known

    def opened(self, session: Session, before: Session, now: float, *, keeps_memory: bool) -> None:
        """A session was opened again. The account goes on if its text does, so that nobody loses a place by a bad line.

        before: what was open by its id. keeps_memory: what it has is not freed.
        """
        account = self._accounts.get(session.session_id)
        if account is None or account.session is not before or not _goes_on(before, session):
            return
        account.session = session
        if not keeps_memory:
            account.leave(now)

    def observe_round(self, seconds: float) -> None:
        """Smooths a round's mean time for the sessions that it decided something for, without their own prefill."""
        self._round_s = smoothed(self._round_s, seconds, SMOOTHING)

    def end(self, session: Session) -> None:
        """Its text is complete: the next ones of its client are expected to be as long."""
        self._accounts.pop(session.session_id, None)
        lengths = self._lengths.setdefault(session.client.name, OutputLengths())
        lengths.observe(len(session.tokens) - len(session.opened.prompt))

    def keep(self, sessions: Mapping[bytes, Session]) -> None:
        """Forgets all but those of open sessions."""
        self._accounts = {key: one for key, one in self._accounts.items() if sessions.get(key) is one.session}

    def keep_lengths(self, clients: Container[str]) -> None:
        """Forgets what was learned from others."""
        self._lengths = {name: one for name, one in self._lengths.items() if name in clients}

    def job(self, session: Session, *, has_place: bool, recompute_s: float) -> Job:
        """The session as an order sees it. has_place: it has memory. recompute_s: to read its text again."""
        account, num_prompt = self.of(session), len(session.opened.prompt)
        lengths = self._lengths.get(session.client.name) or OutputLengths()
        return Job(
            job_id=session.session_id,
            arrived_at=account.arrived_at,
            waits_since=None if has_place else account.wait_began_at,
            attained_s=account.attained_s,
            turn_s=account.turn_s if has_place else 0.0,
            remaining_tokens=lengths.remaining(len(session.tokens) - num_prompt, session.limit - num_prompt),
            rates=account.rates.rates,
            num_drafted=account.rates.num_drafted,
            round_s=account.deciding_s / account.num_decided if account.num_decided else self._round_s or ROUND_S,
            recompute_s=recompute_s,
        )


def _goes_on(before: Session, session: Session) -> bool:
    """Returns whether a session opened again is the same text, at most as far."""
    is_of_it = session.opened.prompt == before.opened.prompt
    return is_of_it and session.tokens == before.tokens[: len(session.tokens)]
