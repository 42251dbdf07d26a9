"""The state of one session at the verify node, and what is derived from it.

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
from verify_node.session.model_calls import ModelCalls
from verify_node.session.phase import Phase
from verify_node.slo.deadline import Deadline

WINDOW, MAX_WINDOW = 16, 256
"""Overdue tokens at which a session waits for its draft node: the least, and for long round trips the most."""


MAX_RETURNS = 8
"""Reopenings for which a text keeps its place: every text must end some time, or others could wait for ever."""


@dataclass(slots=True, eq=False)
class SessionState:
    """One generation: its text so far, its draft node's state, and its permissions."""

    opened: OpenSession
    peer_id: bytes
    client: Client
    acceptance: AcceptanceEstimator
    tokens: list[int]  # prompt and all committed tokens
    admitted: int  # order of opening: the oldest is preempted last
    acked: int  # the draft node has applied all tokens below this position
    limit: int  # position at which the session ends for its length
    acceptance_bound: AcceptanceBound = field(default_factory=AcceptanceBound)  # from its delivered tokens
    phase: Phase = Phase.OPENED
    may_draft: int = 0  # tokens beyond the text that may be drafted, as sent to its draft node
    drafted: Drafted | None = None  # the rest of its newest draft, after the current text
    was_wrong: bool = False  # its latest round rejected a first choice
    needs_draft: bool = False  # its newest verdict left nothing of its draft
    waits: bool = False  # rounds leave it out until its draft is complete, or late
    session_id: bytes = field(init=False)
    epoch: int = field(init=False)
    num_given: int = field(init=False)  # tokens of its text when it was opened
    may_stop_at: int = field(init=False)  # position from which on its stop ids may be drawn
    max_length: int = field(init=False)  # longest draft of which every token, and one token more, can be delivered
    model_calls: ModelCalls = field(init=False)
    last_verdict: Verdict | None = None
    finish_reason: FinishReason | None = None
    arrived_at: float = 0.0  # when its text was first asked for here
    num_returns: int = 0  # times that it was reopened since, and kept its place
    ready_since: float = 0.0
    heard_at: float = 0.0  # latest time that its draft node mentioned it
    moved_at: float = 0.0  # latest time that it was opened, got tokens, or acknowledged some
    num_repeats: int = 0  # verdicts repeated since its latest new acknowledgement
    zero_since: int | None = None  # verify round since which it may draft nothing
    round_trip_s: float = 0.0  # verdict out to draft or Ack in, smoothed
    tokens_per_round: float = 1.0  # smoothed
    late_at: float = 0.0  # time from which its draft is no longer waited for
    sent: deque[tuple[int, float]] = field(default_factory=deque)  # (text length, time) of unacknowledged verdicts
    own: Drafted | None = None  # what the verify node's draft model drafted after the current text
    forced: tuple[int, tuple[int, ...]] | None = None  # (text length, tokens that its constraint forces after that)
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the unacknowledged tokens, if requested
    prompt_logprobs: list[TokenLogprobs] | None = None  # of the prefilled prompt; None: not asked, or acknowledged
    deadline: Deadline | None = None  # None: no objectives
    promised: bool | None = None  # whether its objectives are promised; None: undecided
    prefix_scope: bytes = b""  # sessions of the same scope share prefilled pages; empty: none are shared or retained
    num_cached: int | None = None  # prompt tokens that were cached before its first round; None before that

    def __post_init__(self) -> None:
        opened = self.opened
        self.session_id, self.epoch = opened.session_id, opened.epoch
        self.num_given = len(opened.prompt) + len(opened.committed)
        self.may_stop_at = len(opened.prompt) + opened.min_tokens
        self._limit_drafts()
        self.model_calls = ModelCalls(self.client)

    def _limit_drafts(self) -> None:
        """Sets `max_length` for the current text."""
        self.max_length = max(0, min(self.opened.max_draft, self.limit - len(self.tokens) - 1))

    @property
    def verification(self) -> Verification:
        """The rule of its next round: its own rule; match, which needs no claims, after its client was found to lie.

        The switch keeps texts exact: it depends only on drafts already verified, and match has separate noise.
        """
        return "match" if self.client.suspicion.proven else self.opened.verification

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    @property
    def is_compiling(self) -> bool:
        """True if no round can advance it before its constraint is compiled."""
        return self.phase is Phase.COMPILING

    @property
    def is_active(self) -> bool:
        """True if rounds advance it: its constraint, if any, is compiled, and its text goes on."""
        return self.phase is Phase.RUNNING or self.phase is Phase.OPENED

    @property
    def awaits_draft(self) -> bool:
        """True if rounds wait for its draft, and the draft is not complete yet."""
        return self.waits and not self.finished and (self.drafted is None or not self.drafted.complete)

    @property
    def num_unacknowledged(self) -> int:
        return len(self.tokens) - self.acked

    @property
    def num_overdue(self) -> int:
        """Number of unacknowledged tokens before those of its newest verdict, which may still be on its way.

        A round may bring more tokens than WINDOW. If these counted, every such session would miss the next round.
        """
        return 0 if self.last_verdict is None else max(0, self.last_verdict.base_len - self.acked)

    @property
    def was_told_nothing(self) -> bool:
        """True if its draft node has acknowledged no verdict since the session was opened."""
        return self.acked == self.num_given

    @property
    def takes_drafts(self) -> bool:
        """True if a round may verify drafts for it, the draft node's or the verify node's."""
        return self.phase is Phase.RUNNING and self.opened.drafter != "none" and self.max_length > 0

    @property
    def expects_answer(self) -> bool:
        """True if its draft node still has to answer the newest verdict, by a draft of its n-gram index."""
        is_known = self.client.has_index and self.allows_ngrams and self.takes_drafts
        return is_known and self.acked < len(self.tokens) and self.drafted is None

    @property
    def answered(self) -> bool | None:
        """True if its draft node has answered the newest verdict; None if rounds need not wait for that answer."""
        return self.acked == len(self.tokens) if self.needs_draft and self.takes_drafts else None

    @property
    def expects_model(self) -> bool:
        """True if its draft model must draft anew, and is known to answer."""
        is_known = self.model_calls.is_called and self.client.answer_s > 0.0
        return is_known and self.takes_drafts and self.drafted is None

    @property
    def model_drafted(self) -> bool | None:
        """True if a draft model that had to draft anew has done so; None if no new draft was needed."""
        if not self.model_calls.is_called or not self.takes_drafts:
            return None
        return self.drafted is not None and bool(self.drafted.tokens)

    @property
    def answer_due_at(self) -> float:
        """Time at which the answer to its newest verdict should arrive."""
        return self.sent[-1][1] + self.round_trip_s if self.sent else 0.0

    @property
    def model_due_at(self) -> float:
        """Time at which its draft model's new draft should have arrived, with a margin for small delays."""
        return self.model_calls.due_at

    @property
    def allows_ngrams(self) -> bool:
        """True if n-gram drafts may be verified; under ratio they may not: tokens that are not sampled must be
        certain."""
        return self.opened.drafter in ("auto", "ngram") and self.verification == "match"

    @property
    def uses_model(self) -> bool:
        """True if its draft node's model may draft for it."""
        return self.opened.drafter in ("auto", "model") and self.client.has_model and self.opened.max_draft > 0

    @property
    def allows_own(self) -> bool:
        """True if the verify node's draft model may draft for it: that model applies no logit rules or constraints."""
        opened = self.opened
        is_plain = opened.logit_rules is None and opened.constraint is None
        return is_plain and opened.drafter == "auto" and self.verification == "match" and self.max_length > 0

    def allows_drafts_of(self, source: DraftSource | None) -> bool:
        """True if drafts of this source may be verified."""
        return self.opened.drafter in ("auto", source)

    @property
    def forced_next(self) -> tuple[int, ...]:
        """Tokens that its constraint forces after its current text."""
        return self.forced[1] if self.forced is not None and self.forced[0] == len(self.tokens) else ()

    def window(self, round_s: float) -> int:
        """Overdue tokens permitted: 16, or the tokens of two round trips' rounds; at most 256."""
        rounds = 2 * self.round_trip_s / round_s if round_s else 0
        return int(min(MAX_WINDOW, max(WINDOW, rounds * max(1.0, self.tokens_per_round))))

    def can_move(self, round_s: float) -> bool:
        """True if rounds of this duration can advance it; else its constraint is not compiled, or its draft node must
        send a draft, an Ack or a Close."""
        if not self.is_active or self.awaits_draft:
            return False
        return (overdue := self.num_overdue) < WINDOW or overdue < self.window(round_s)

    @property
    def lacks_prompt_logprobs(self) -> bool:
        """True if part of its prompt must be prefilled, maybe again, for requested logprobs."""
        return self.prompt_logprobs is not None and len(self.prompt_logprobs) < len(self.opened.prompt) - 1

    @property
    def most_cached(self) -> int:
        """Tokens of its text that may come from the prefix cache: beyond them logprobs are needed."""
        return len(self.prompt_logprobs or ()) if self.lacks_prompt_logprobs else len(self.tokens) - 1

    @property
    def told_of_prompt(self) -> tuple[TokenLogprobs, ...] | None:
        """Prompt logprobs that its draft node waits for; None if acknowledged, or not requested."""
        return None if self.prompt_logprobs is None else tuple(self.prompt_logprobs)

    def logprobs_from(self, base_len: int) -> tuple[TokenLogprobs, ...] | None:
        """Returns the logprobs of the tokens from base_len on, which are unacknowledged; None if not requested."""
        if self.opened.num_logprobs is None:
            return None
        return tuple(self.logprobs[len(self.logprobs) - (len(self.tokens) - base_len) :])
