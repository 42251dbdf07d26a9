"""The account of one text with objectives: how many tokens it has had, how late it is, and where its time went.

All times are this node's. What is judged here explains; whether a text was in time its own draft node says, where its
reader is. Knows nothing about what a round does for it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from goodspeed.slo.kept import SLACK
from goodspeed.slo.objectives import Objectives
from goodspeed.slo.owed import Standing, owed_tokens
from goodspeed.wire.messages import Slo

Cause: TypeAlias = Literal["queue", "prefill", "round", "draft", "network", "memory", "away"]
"""What a text waits for: a round to begin, a round that reads its prompt, one that goes on with it, its draft, a
message of its draft node, key/value memory, or its draft node's return."""


@dataclass(slots=True)
class Ledger:
    """One text's account, from when its user asked for it."""

    slo: Objectives  # as far as its key allows
    asked_at: float
    at: float  # until then its time is accounted for
    first_at: float | None = None  # None: it has no token yet
    last_at: float | None = None
    num_tokens: int = 0
    cause: Cause = "queue"  # what it waits for
    before_first: dict[Cause, float] = field(default_factory=dict)  # seconds until its first token
    after_first: dict[Cause, float] = field(default_factory=dict)

    @classmethod
    def open(
        cls, asked: Slo, slo: Objectives, num_tokens: int, round_trip_s: float, now: float, old: "Ledger | None" = None
    ) -> "Ledger":
        """The account of a text that is opened, or opened again with so many tokens, by a message of this moment.

        slo: what it is granted. The message took half a round trip. Of a text that was under way the draft node tells
        when its reader got the first token, another half of one after it was decided here. old: the text's account
        until now. Without one, as after a restart, what the text is late by counts as absence.
        """
        up_s = round_trip_s / 2
        ledger = cls(slo, asked_at=now - up_s - asked.waited_s, at=now, num_tokens=num_tokens)
        ledger._account("network", up_s)
        ledger._account("queue", max(0.0, asked.waited_s - (asked.since_first_s or 0.0)))
        if num_tokens and asked.since_first_s is not None:
            ledger.first_at = now - asked.since_first_s - round_trip_s
            ledger.last_at = now
        if old is not None:
            ledger.before_first, ledger.after_first = dict(old.before_first), dict(old.after_first)
            ledger._account("away", now - old.at)
        elif ledger.first_at is not None and slo.tpot_s is not None:
            ledger._account("away", max(0.0, now - ledger.first_at - slo.tpot_s * (num_tokens - 1)))
        return ledger

    def turn_to(self, cause: Cause, now: float) -> None:
        """From now on the text waits for something else."""
        self._account(self.cause, now - self.at)
        self.at, self.cause = now, cause

    def decided(self, num_tokens: int, now: float) -> None:
        """The round that ended now gave it tokens."""
        if num_tokens:
            self.first_at = now if self.first_at is None else self.first_at
            self.last_at = now
            self.num_tokens += num_tokens

    def standing(self, now: float) -> Standing | None:
        """How it stands against its TPOT; None without one, and before its first token."""
        if self.slo.tpot_s is None or self.first_at is None:
            return None
        return Standing(self.slo.tpot_s, now - self.first_at, self.num_tokens - 1)

    def owed(self, now: float, round_s: float) -> float:
        """Tokens that a round of this length has to bring for the text to be on time; one is always due."""
        standing = self.standing(now)
        return 1.0 if standing is None else max(1.0, owed_tokens(*standing, round_s))

    def is_behind(self, now: float) -> bool:
        """Whether it has had fewer tokens than its TPOT asks for by now, or no token although its TTFT is over."""
        if self.first_at is None:
            return self.slo.ttft_s is not None and now - self.asked_at > self.slo.ttft_s
        return self.slo.tpot_s is not None and now - self.first_at > self.slo.tpot_s * self.num_tokens + SLACK

    def violation(self, round_trip_s: float) -> Cause | None:
        """What took most of the time of a text that is complete and late; None if it is not late.

        round_trip_s: half of one is on its first token's way to its reader.
        """
        seconds: defaultdict[Cause, float] = defaultdict(float)
        is_late = self.slo.ttft_s is not None and self._ttft_s(round_trip_s) > self.slo.ttft_s + SLACK
        is_slow = self.slo.tpot_s is not None and self._tpot_s() > self.slo.tpot_s + SLACK
        for account in [self.before_first] * is_late + [self.after_first] * is_slow:
            for cause, part in account.items():
                seconds[cause] += part
        return max(seconds, key=seconds.__getitem__, default=None)

    def _ttft_s(self, round_trip_s: float) -> float:
        first_at = self.at if self.first_at is None else self.first_at
        return first_at + round_trip_s / 2 - self.asked_at

    def _tpot_s(self) -> float:
        if self.first_at is None or self.last_at is None or self.num_tokens < 2:
            return 0.0
        return (self.last_at - self.first_at) / (self.num_tokens - 1)

    def _account(self, cause: Cause, seconds: float) -> None:
        account = self.before_first if self.first_at is None else self.after_first
        account[cause] = account.get(cause, 0.0) + seconds
