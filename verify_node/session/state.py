"""The state of one session at the verify node, and what follows from it at once. Changes nothing.

`session.py` adds the transitions.
"""

from collections import deque
from dataclasses import dataclass, field

from goodspeed.fair.estimators import AcceptanceEstimator
from goodspeed.wire.fields import DraftSource, FinishReason, Verification
from goodspeed.wire.messages import OpenSession, TokenLogprobs, Verdict
from verify_node.session.acceptance_bound import AcceptanceBound
from verify_node.session.client import Client
from verify_node.session.drafted import Drafted
from verify_node.session.phase import Phase
from verify_node.slo.deadline import Deadline

WINDOW = 16
"""Unacknowledged tokens after which a session that advances by itself waits for its draft node."""

MAX_WINDOW = 256
"""The most that far round trips can widen the window to."""

LATER = 1.1
"""A draft is waited for until so many times its usual time."""


@dataclass(slots=True)
class ModelCalls:
    """When a session's draft model has to draft anew, and how long that takes; what this teaches is its client's.

    A verdict that permits drafts, and leaves nothing of the last one, calls the draft model.
    """

    client: Client
    _called_at: float | None = None  # the verdict since which its draft model has to draft anew
    _has_drafted: bool = False  # since then
    _missed_after_s: float = 0.0  # its silence so far, when that was last held against it
    _last: tuple[bool, int] | None = None  # of the last round: whether it was in time, and the tokens accepted

    @property
    def is_called(self) -> bool:
        """True if the draft model had to draft anew after the newest verdict."""
        return self._called_at is not None

    @property
    def due_at(self) -> float:
        """When it should have drafted anew, also if it is a little later than usual."""
        return (self._called_at or 0.0) + LATER * self.client.answer_s

    def answered(self, now: float) -> None:
        """Takes note of a draft that follows the text as it is now."""
        if self._called_at is None:
            return
        if not self._has_drafted:
            self.client.observe_answer_time(now - self._called_at)
        self._has_drafted = True

    def end(self) -> None:
        """Ends the call: its draft node answered by other means."""
        self._called_at = None

    def verdict_goes_out(self, now: float, *, calls: bool) -> None:
        """calls: a draft model that may draft has to do so anew, since nothing is left of its last draft.

        One that is silent has been called since its last draft ended, however many verdicts ago. Its silence counts
        each time that it has doubled, so that it does not matter how quick rounds are.
        """
        is_silent = self._called_at is not None and not self._has_drafted
        if is_silent and (silence := now - (self._called_at or 0.0)) >= 2.0 * self._missed_after_s:
            self.client.miss_answer(silence)
            self._missed_after_s = silence
        if not calls:
            self._called_at = None
        elif not is_silent:
            self._called_at, self._missed_after_s = now, 0.0
        self._has_drafted = False

    def observe(self, num_accepted: int, drafted: bool | None) -> None:
        """A round is done. drafted: whether it was in time for that; None: it did not have to draft.

        What a draft in time brings shows in that round and in the next: one that comes too late for the first is there
        for the second, and reaches farther.
        """
        if self._last is not None:
            before, num_before = self._last
            self.client.model_gain.observe(num_before + num_accepted, in_time=before)
        self._last = None if drafted is None else (drafted, num_accepted)


@dataclass(slots=True, eq=False)
class SessionState:
    """One generation: its text so far, what its draft node has of it, and what it may do next."""

    opened: OpenSession
    peer_id: bytes
    client: Client
    acceptance: AcceptanceEstimator
    tokens: list[int]  # prompt and everything committed
    admitted: int  # order of opening: the oldest is the last to be preempted
    acked: int  # the draft node has applied everything below this position
    limit: int  # position at which the session ends for its length
    acceptance_bound: AcceptanceBound = field(default_factory=AcceptanceBound)  # from its delivered tokens
    phase: Phase = Phase.OPENED
    may_draft: int = 0  # tokens beyond the text that may be drafted, as its draft node was told
    drafted: Drafted | None = None  # what is left of its newest draft, after the text as it is now
    waits: bool = False  # no round takes it before its draft is complete, or late
    model_calls: ModelCalls = field(init=False)
    last_verdict: Verdict | None = None
    finish_reason: FinishReason | None = None
    ready_since: float = 0.0
    heard_at: float = 0.0  # last time that its draft node mentioned it
    moved_at: float = 0.0  # last time that it was opened, got tokens, or acknowledged some
    num_repeats: int = 0  # verdicts sent again since it last acknowledged more
    zero_since: int | None = None  # verify round since which it may draft nothing
    round_trip_s: float = 0.0  # verdict out to draft or Ack in, smoothed
    late_at: float = 0.0  # when its draft is waited for no more
    sent: deque[tuple[int, float]] = field(default_factory=deque)  # (text length, time) of unacknowledged verdicts
    forced: tuple[int, tuple[int, ...]] | None = None  # what must follow a text of so many tokens, by its form
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the unacknowledged tokens, where they are wanted
    prompt_logprobs: list[TokenLogprobs] | None = (
        None  # of the prompt, as far as it is read; None: nobody waits for any
    )
    deadline: Deadline | None = None  # None: it is to keep nothing in particular
    promised: bool | None = None  # what it is to keep; None: nothing was decided of it
    prefix_scope: bytes = b""  # who shares pages of read text with it; empty: nobody, and none are kept
    num_cached: int | None = None  # of the prompt: tokens that were cached before its first round; None before that

    def __post_init__(self) -> None:
        self.model_calls = ModelCalls(self.client)

    @property
    def session_id(self) -> bytes:
        return self.opened.session_id

    @property
    def epoch(self) -> int:
        return self.opened.epoch

    @property
    def verification(self) -> Verification:
        """The rule of its next round; match, which needs no claims, once its client was found to lie.

        Switching keeps texts exact: it depends only on drafts already verified, and match has noise of its own.
        """
        return "match" if self.client.suspicion.proven else self.opened.verification

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    @property
    def awaits_draft(self) -> bool:
        """True if its draft is waited for, and not complete yet."""
        return self.waits and not self.finished and (self.drafted is None or not self.drafted.complete)

    @property
    def num_unacknowledged(self) -> int:
        return len(self.tokens) - self.acked

    @property
    def num_given(self) -> int:
        """Tokens of its text when it was opened."""
        return len(self.opened.prompt) + len(self.opened.committed)

    @property
    def was_told_nothing(self) -> bool:
        """True if its draft node has acknowledged no verdict since it was opened."""
        return self.acked == self.num_given

    @property
    def is_held_up(self) -> bool:
        """True if only its draft node can move it: by a draft, an Ack or a Close."""
        return self.finished or self.awaits_draft or self.num_unacknowledged >= WINDOW

    @property
    def takes_drafts(self) -> bool:
        """True if a round that moves it on may verify what is drafted for it, here or there."""
        return self.phase is Phase.RUNNING and self.opened.drafter != "none" and self.max_length > 0

    @property
    def hopes_for_answer(self) -> bool:
        """True if its draft node has the newest verdict still to answer, by a draft of its n-gram index."""
        is_known = self.client.has_index and self.allows_ngrams and self.takes_drafts
        return is_known and self.acked < len(self.tokens) and self.drafted is None

    @property
    def hopes_for_model(self) -> bool:
        """True if its draft model, which is known to answer, has to draft anew."""
        is_known = self.model_calls.is_called and self.client.answer_s > 0.0
        return is_known and self.takes_drafts and self.drafted is None

    @property
    def model_drafted(self) -> bool | None:
        """True if a draft model that had to draft anew has done so; None if none had to."""
        if not self.model_calls.is_called or not self.takes_drafts:
            return None
        return self.drafted is not None and bool(self.drafted.tokens)

    @property
    def answer_due_at(self) -> float:
        """When the answer to its newest verdict should be there."""
        return self.sent[-1][1] + self.round_trip_s if self.sent else 0.0

    @property
    def model_due_at(self) -> float:
        """When its draft model should have drafted anew, also if it is a little later than usual."""
        return self.model_calls.due_at

    @property
    def allows_ngrams(self) -> bool:
        """True if tokens of indexes may be verified that were not drawn: under ratio they must be certain."""
        return self.opened.drafter in ("auto", "ngram") and self.verification == "match"

    @property
    def uses_model(self) -> bool:
        """True if the draft model of its draft node may draft for it."""
        return self.opened.drafter in ("auto", "model") and self.client.has_model and self.opened.max_draft > 0

    def allows_drafts_of(self, source: DraftSource | None) -> bool:
        """Returns whether what this has drafted may be verified."""
        return self.opened.drafter in ("auto", source)

    @property
    def may_stop_at(self) -> int:
        """Position from which on one of its stop ids may be drawn."""
        return len(self.opened.prompt) + self.opened.min_tokens

    @property
    def is_text_read(self) -> bool:
        """True if its logits depend on its text beyond what the model makes of it."""
        rules = self.opened.logit_rules
        return (rules is not None and rules.reads_text) or self.opened.constraint is not None

    @property
    def forced_next(self) -> tuple[int, ...]:
        """Tokens that must follow the text as it is, by the form that it is to keep."""
        return self.forced[1] if self.forced is not None and self.forced[0] == len(self.tokens) else ()

    @property
    def max_length(self) -> int:
        """Longest draft of which every token, and one more, can still be delivered."""
        return max(0, min(self.opened.max_draft, self.limit - len(self.tokens) - 1))

    def window(self, round_s: float) -> int:
        """Tokens that may be on their way: 16, or what two round trips' worth of rounds bring, at most 256."""
        rounds = 2 * self.round_trip_s / round_s if round_s else 0
        return int(min(MAX_WINDOW, max(WINDOW, rounds * max(1.0, self.client.goodput.value))))

    def is_ready(self, window: int = WINDOW) -> bool:
        """Returns whether a round can move it forward now."""
        return not self.finished and not self.awaits_draft and self.num_unacknowledged < window

    def can_move(self, round_s: float) -> bool:
        """Returns whether a round can move it: it waits for no draft, and its draft node keeps up."""
        return self.is_ready(self.window(round_s))

    @property
    def lacks_prompt_logprobs(self) -> bool:
        """True if some of its prompt has to be read, or read again, for logprobs that are wanted."""
        return self.prompt_logprobs is not None and len(self.prompt_logprobs) < len(self.opened.prompt) - 1

    @property
    def num_readable(self) -> int:
        """Tokens of its text that may count as read before it was opened: beyond them logprobs are wanted."""
        return len(self.prompt_logprobs or ()) if self.lacks_prompt_logprobs else len(self.tokens) - 1

    @property
    def told_of_prompt(self) -> tuple[TokenLogprobs, ...] | None:
        """Prompt logprobs that its draft node waits for; None where it has them, or wants none."""
        return None if self.prompt_logprobs is None else tuple(self.prompt_logprobs)

    def logprobs_from(self, base_len: int) -> tuple[TokenLogprobs, ...] | None:
        """Returns the logprobs of the tokens from base_len on, which is not acknowledged; None where they are not
        wanted."""
        if self.opened.num_logprobs is None:
            return None
        return tuple(self.logprobs[len(self.logprobs) - (len(self.tokens) - base_len) :])
