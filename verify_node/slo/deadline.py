"""The deadline of one session: when its next token is due, what it needs for that, and where its time went.

All times are this node's. What is judged here explains; whether a text was in time its draft node says, where its
reader is.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal, TypeAlias

from goodspeed.slo.capacity import FIRST_TOKEN_S, planned_s
from goodspeed.slo.feasible import Ask
from goodspeed.slo.kept import SLACK, Times
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo

Cause: TypeAlias = Literal["queue", "prefill", "round", "draft", "network", "memory", "away"]
"""A text waits for one of these: a round to begin, a round that prefills its prompt, one that goes on with it, its
draft, a message of its draft node, KV pages, or its draft node's return."""

T_SPEC_FACTOR = 1.05
"""By so much the next round may be longer than the last was, as in the code of AdaServe's authors."""


@dataclass(slots=True, kw_only=True)
class Deadline(Times):
    """The times of one session's text at this node, and what it is to keep until it is over."""

    session_id: bytes
    client: str  # its name
    slo: Objectives  # as far as its key allows
    due_first: float  # when its first token after the opening is due; once that is there, when it came if sooner
    num_opened: int = 0  # tokens of the text at its opening
    # what a promise reserves
    prompt_left: int = 0  # tokens to prefill; with the last one comes a token of the text; 0: it decodes
    pages: int = 0  # of KV memory, in the worst case: for the prompt and all that may be written
    paused_since: float | None = None  # since when only its draft node can move it; None: a round can
    # where its time went
    at: float = 0.0  # its time is accounted for until then
    cause: Cause = "queue"  # what it waits for
    before_first: dict[Cause, float] = field(default_factory=dict)  # seconds until its first token
    after_first: dict[Cause, float] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        session_id: bytes,
        client: str,
        asked: Slo,
        slo: Objectives,
        num_tokens: int,
        round_trip_s: float,
        now: float,
        old: "Deadline | None" = None,
    ) -> "Deadline":
        """The deadline of a text that is opened, or opened again with so many tokens, by a message of this moment.

        slo: what it is granted. The message took half a round trip. Of a text that was under way the draft node tells
        when its reader got the first token, another half of one after it was decided here. old: the text's deadline
        until now. Without one, as after a restart, what the text is late by counts as absence.
        """
        up_s = round_trip_s / 2
        asked_at, due_first = now - up_s - asked.waited_s, now + FIRST_TOKEN_S
        if slo.ttft_s is not None and not (num_tokens and asked.since_first_s is not None):
            due_first = asked_at + slo.ttft_s - up_s
        opened = cls(
            asked_at,
            num_tokens=num_tokens,
            session_id=session_id,
            client=client,
            slo=slo,
            due_first=due_first,
            num_opened=num_tokens,
            at=now,
        )
        opened._account("network", up_s)
        opened._account("queue", max(0.0, asked.waited_s - (asked.since_first_s or 0.0)))
        if num_tokens and asked.since_first_s is not None:
            opened.first_at = now - asked.since_first_s - round_trip_s
            opened.last_at = now
        if old is not None:
            opened.before_first, opened.after_first = dict(old.before_first), dict(old.after_first)
            opened._account("away", now - old.at)
        elif opened.first_at is not None and slo.tpot_s is not None:
            opened._account("away", max(0.0, now - opened.first_at - slo.tpot_s * (num_tokens - 1)))
        return opened

    # -- what happens to it ----------------------------------------------------------------------------------------

    def turn_to(self, cause: Cause, now: float) -> None:
        """From now on the text waits for something else."""
        self._account(self.cause, now - self.at)
        self.at, self.cause = now, cause

    def delivered(self, num_tokens: int, now: float) -> None:
        """The round that ended now gave it tokens."""
        if num_tokens and self.num_tokens <= self.num_opened:
            self.due_first = min(self.due_first, now)
        Times.delivered(self, num_tokens, now)

    def reserve(self, prompt_left: int, pages: int) -> None:
        """So many tokens are left to prefill; of a text with a token here the newest one is no prompt."""
        self.prompt_left = 0 if prompt_left == 1 and self.num_tokens > self.num_opened else prompt_left
        self.pages = pages

    def continue_promise(self, old: "Deadline") -> None:
        """The text was opened again, and keeps the promise that it had."""
        self.due_first, self.num_opened, self.paused_since = old.due_first, old.num_opened, old.paused_since
        self.prompt_left, self.pages = old.prompt_left, old.pages

    def pause(self, now: float) -> None:
        """Pauses the deadline while the session waits for its draft node."""
        self.paused_since = now if self.paused_since is None else self.paused_since

    def resume(self, now: float) -> None:
        """A round can move the session again: it is owed nothing for the time in which none could."""
        if self.paused_since is not None:
            self.due_first += now - self.paused_since
            self.paused_since = None

    # -- what it needs of rounds ------------------------------------------------------------------------------------

    @property
    def is_decoding(self) -> bool:
        """True if every round may bring it a token: its prompt is read."""
        return not self.prompt_left

    @property
    def due(self) -> float:
        """Time at which its next token is due: token k, k TPOTs after the first one, or after its deadline if late.

        So the reader, who counts from the first token on, finds the TPOT kept. The paper counts from the deadline,
        which asks for less; a last prompt token that is held makes both nearly the same.
        """
        num_delivered = max(0, self.num_tokens - self.num_opened)
        if not num_delivered:
            return self.due_first
        return inf if self.slo.tpot_s is None else self.due_first + num_delivered * self.slo.tpot_s

    def may_begin(self, now: float) -> bool:
        """Returns whether its first token is not there yet, and may still come in time."""
        return self.first_at is None and now < self.due_first

    def request(self, now: float, early_s: float) -> Ask:
        """The rest of a promised prompt; without a TPOT no next token is due, and it has some time."""
        left_s = self.due - now if isfinite(self.due) else FIRST_TOKEN_S
        return Ask(planned_s(left_s, early_s), self.prompt_left, self.slo.tpot_s, promised=True)

    def late_by(self, now: float) -> float | None:
        """Seconds since its first token, less a TPOT for each token after it (AdaServe's l - o TPOT).

        None without a TPOT, and before the first token.
        """
        if self.slo.tpot_s is None or self.first_at is None:
            return None
        return now - self.first_at - self.slo.tpot_s * (self.num_tokens - 1)

    def owed(self, now: float, round_s: float) -> float:
        """Tokens that a round of this length has to bring for the text to be on time; one is always due.

        AdaServe, Eqs. (2) and (3): A(r) = (l + t) / TPOT - o.
        """
        late_s = self.late_by(now)
        if late_s is None or self.slo.tpot_s is None:
            return 1.0
        return max(1.0, (late_s + T_SPEC_FACTOR * round_s) / self.slo.tpot_s)

    def left_s(self, now: float) -> float:
        """Seconds that the next round may take if it brings one token (AdaSpec, Alg. 3); infinity for no bound."""
        late_s = self.late_by(now)
        return inf if late_s is None or self.slo.tpot_s is None else self.slo.tpot_s - late_s

    # -- whether it is kept ----------------------------------------------------------------------------------------

    def is_behind(self, now: float) -> bool:
        """True if the text has fewer tokens than its TPOT asks for by now, or none although its TTFT is over."""
        if self.first_at is None:
            return self.slo.ttft_s is not None and now - self.asked_at > self.slo.ttft_s
        return self.left_s(now) < -SLACK

    def violation(self, round_trip_s: float) -> Cause | None:
        """The cause that took most of the time of a complete and late text; None if it is not late.

        round_trip_s: half of one is on its first token's way to its reader.
        """
        first_at = self.at if self.first_at is None else self.first_at
        is_late = self.slo.ttft_s is not None and first_at + round_trip_s / 2 - self.asked_at > self.slo.ttft_s + SLACK
        is_slow = self.slo.tpot_s is not None and (self.tpot_s or 0.0) > self.slo.tpot_s + SLACK
        seconds: defaultdict[Cause, float] = defaultdict(float)
        for account in [self.before_first] * is_late + [self.after_first] * is_slow:
            for cause, part in account.items():
                seconds[cause] += part
        return max(seconds, key=seconds.__getitem__, default=None)

    def _account(self, cause: Cause, seconds: float) -> None:
        account = self.before_first if self.first_at is None else self.after_first
        account[cause] = account.get(cause, 0.0) + seconds
