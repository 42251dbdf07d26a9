"""The deadline of one session: when its next token is due, what it needs for that, and where its time went.

All times are this node's. The judgement here only explains delays; the draft node, where the reader is, judges whether
a text was in time.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from typing import Literal, TypeAlias

from goodspeed.slo.attainment import SLACK, Times
from goodspeed.slo.capacity import FIRST_TOKEN_S, planned_s
from goodspeed.slo.feasible import Ask
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo

Cause: TypeAlias = Literal["queue", "prefill", "round", "draft", "network", "memory", "away"]
"""Cause that a text waits for: a round to begin, a round that prefills its prompt, a round that continues it, its
draft, a message of its draft node, KV pages, or its draft node's return."""

T_SPEC_FACTOR = 1.05
"""Factor by which the next round may be longer than the previous one, as in the code of AdaServe's authors."""


@dataclass(slots=True, kw_only=True)
class Deadline(Times):
    """The times of one session's text at this node, and its objectives until it ends."""

    session_id: bytes
    client: str  # its name
    slo: Objectives  # within the limits of its key
    # what is due: a token per TPOT from this one on
    paced_at: float  # when token `paced_from` is due; once it is there, when it came
    paced_from: int = 0  # number of the first token after the opening; later, as `window_from`
    # what a promise reserves
    prompt_left: int = 0  # tokens to prefill; the final one yields a token of the text; 0: it decodes
    rows_left: float = 0.0  # rows without context that take as long as `prompt_left` tokens (`Refined.prompt_rows`)
    next_row: float = 1.0  # of these, those of the first token
    pages: int = 0  # KV pages in the worst case, for the prompt and the longest output
    paused_since: float | None = None  # since when only its draft node can move it; None: a round can move it
    # where its time went
    at: float = 0.0  # time up to which its waits are accounted for
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
        """Creates the deadline of a text that a message of this moment opens, or reopens with `num_tokens` tokens.

        slo: the granted objectives. The message took half a round trip. For a text under way, the draft node reports
        when its reader got the first token, half a round trip after that token was decided here. old: the text's
        previous deadline. Without `old`, as after a restart, the text's delay counts as absence.
        """
        up_s = round_trip_s / 2
        asked_at, paced_at = now - up_s - asked.waited_s, now + FIRST_TOKEN_S
        since_first_s = asked.since_first_s if num_tokens else None
        if slo.ttft_s is not None and since_first_s is None:
            paced_at = asked_at + slo.ttft_s - up_s
        opened = cls(
            asked_at,
            num_tokens=num_tokens,
            session_id=session_id,
            client=client,
            slo=slo,
            paced_at=paced_at,
            paced_from=num_tokens,
            at=now,
        )
        opened._account("network", up_s)
        opened._account("queue", max(0.0, asked.waited_s - (asked.since_first_s or 0.0)))
        if since_first_s is not None:
            opened.first_at = now - since_first_s - round_trip_s
            opened.last_at = now
            opened._continue_windows(now)
        if old is not None:
            opened.before_first, opened.after_first = dict(old.before_first), dict(old.after_first)
            opened._account("away", now - old.at)
        elif opened.first_at is not None and slo.tpot_s is not None:
            opened._account("away", max(0.0, now - opened.first_at - slo.tpot_s * (num_tokens - 1)))
        return opened

    # -- events ------------------------------------------------------------------------------------------------------

    def turn_to(self, cause: Cause, now: float) -> None:
        """Books the time until now under the present cause, and switches to another."""
        self._account(self.cause, now - self.at)
        self.at, self.cause = now, cause

    def _continue_windows(self, now: float) -> None:
        """Judges what its reader has by the mean. A window that began elsewhere counts as neither ahead nor behind."""
        self.window_at = self.first_at or now
        if self.slo.tpot_s is None:
            return
        self._allowed_s = self.slo.tpot_s * (self.num_tokens - 1 - self.window_from)
        if self.window_from:
            self._was_slow = now - self.window_at > self.slo.tpot_s * (self.num_tokens - 1) + SLACK
            self.window_at = now - self._allowed_s

    def delivered(self, num_tokens: int, now: float, num_thinking: int = 0) -> None:
        """Records the tokens of a round that ended now."""
        if num_tokens and not self.has_begun:
            self.paced_at = min(self.paced_at, now)
        Times.delivered(self, num_tokens, now, num_thinking)
        if self.window_from > self.paced_from:
            self.paced_at, self.paced_from = now, self.window_from

    def set_prompt(self, prompt_left: int, rows_left: float | None = None, next_row: float = 1.0) -> None:
        """Sets the tokens to prefill. Once a text has a token from here, its newest token is no prompt."""
        self.prompt_left = 0 if prompt_left == 1 and self.has_begun else prompt_left
        self.rows_left = self.prompt_left if rows_left is None or not self.prompt_left else rows_left
        self.next_row = next_row

    def rows_of(self, num_tokens: int) -> float:
        """Returns the rows of the prompt's next tokens, of which each costs as much more as it is later."""
        more = (self.rows_left / self.prompt_left - self.next_row) / self.prompt_left
        return num_tokens * (self.next_row + more * num_tokens)

    def tokens_in(self, num_rows: float) -> int:
        """Inverts `rows_of`: the most of the prompt's tokens whose rows are at most these."""
        return bisect_right(range(1, self.prompt_left + 1), num_rows, key=self.rows_of)

    def reserve(self, pages: int) -> None:
        self.pages = pages

    def continue_promise(self, old: "Deadline") -> None:
        """Takes over the promise of a reopened text's previous deadline."""
        self.paced_at, self.paced_from, self.paused_since = old.paced_at, old.paced_from, old.paused_since
        self.prompt_left, self.rows_left, self.pages = old.prompt_left, old.rows_left, old.pages

    def pause(self, now: float) -> None:
        """Pauses the deadline while the session waits for its draft node."""
        self.paused_since = now if self.paused_since is None else self.paused_since

    def resume(self, now: float) -> None:
        """Resumes the deadline, later by the pause: no round could move the session in that time."""
        if self.paused_since is not None:
            self.paced_at += now - self.paused_since
            self.paused_since = None

    # -- needs -------------------------------------------------------------------------------------------------------

    @property
    def is_decoding(self) -> bool:
        """True if the prompt is prefilled, so that every round may yield a token."""
        return not self.prompt_left

    @property
    def has_begun(self) -> bool:
        """True if a token was delivered since the opening."""
        return self.num_tokens > self.paced_from

    @property
    def due(self) -> float:
        """Time at which the next token is due: k TPOTs after the first one, or after that one's deadline if missed.

        Counts anew from the last token of each complete window, as the reader does, who so finds the TPOT met in every
        window: tokens that came early in one window are no reserve in the next. The paper counts from the deadline,
        which requires less; holding back the final prompt token makes both nearly the same.
        """
        num_ahead, tpot_s = self.num_tokens - self.paced_from, self.slo.tpot_s
        if num_ahead <= 0:
            return self.paced_at
        return inf if tpot_s is None else self.paced_at + num_ahead * tpot_s

    def may_begin(self, now: float) -> bool:
        """Returns whether the first token is not there yet, and may still come in time."""
        return self.first_at is None and now < self.paced_at

    def request(self, now: float, early_s: float) -> Ask:
        """Returns the rest of a promised prompt.

        Without a TPOT, no next token is due: the deadline is then FIRST_TOKEN_S away.
        """
        left_s = self.due - now if isfinite(self.due) else FIRST_TOKEN_S
        return Ask(planned_s(left_s, early_s), ceil(self.rows_left), self.slo.tpot_s, promised=True)

    def late_by(self, now: float) -> float | None:
        """Returns the seconds since the window's first token, less a TPOT for each later one (AdaServe's l - o TPOT).

        None without a TPOT, and before the first token.
        """
        if self.slo.tpot_s is None or self.first_at is None:
            return None
        return now - self.window_at - self.slo.tpot_s * (self.num_tokens - 1 - self.window_from)

    def owed(self, now: float, round_s: float) -> float:
        """Returns the tokens that a round of this length must yield for the text to be on time; at least one.

        AdaServe, Eqs. (2) and (3): A(r) = (l + t) / TPOT - o.
        """
        late_s = self.late_by(now)
        if late_s is None or self.slo.tpot_s is None:
            return 1.0
        return max(1.0, (late_s + T_SPEC_FACTOR * round_s) / self.slo.tpot_s)

    def left_s(self, now: float) -> float:
        """Returns the longest next round that yields one token in time, in s (AdaSpec, Alg. 3); infinity: no bound."""
        late_s = self.late_by(now)
        return inf if late_s is None or self.slo.tpot_s is None else self.slo.tpot_s - late_s

    # -- attainment ------------------------------------------------------------------------------------------------

    def is_behind(self, now: float) -> bool:
        """True if the text has fewer tokens than its TPOT requires by now, or none after its TTFT."""
        if self.first_at is None:
            return self.slo.ttft_s is not None and now - self.asked_at > self.slo.ttft_s
        return self.left_s(now) < -SLACK

    def violation(self, round_trip_s: float) -> Cause | None:
        """Returns the cause that took most of the time of a complete, late text; None if the text was in time.

        round_trip_s: the first token takes half of that to its reader.
        """
        first_at = self.at if self.first_at is None else self.first_at
        is_late = self.slo.ttft_s is not None and first_at + round_trip_s / 2 - self.asked_at > self.slo.ttft_s + SLACK
        seconds: defaultdict[Cause, float] = defaultdict(float)
        for account in [self.before_first] * is_late + [self.after_first] * self.is_slow:
            for cause, part in account.items():
                seconds[cause] += part
        return max(seconds, key=seconds.__getitem__, default=None)

    def _account(self, cause: Cause, seconds: float) -> None:
        account = self.before_first if self.first_at is None else self.after_first
        account[cause] = account.get(cause, 0.0) + seconds
