"""One session at the draft node, as a state machine: events in, actions out. No I/O, no clock, no torch.

Events are the verify node's messages, finished proposals and the time. The driver carries out the actions: send a
message, have the draft model propose, deliver tokens to the user. The text is in `text.py`, drafting in `drafts`.
`TRANSITIONS` has all transitions.
"""

from dataclasses import dataclass, field
from enum import Enum

from draft_node.core.actions import Action, Fail, Finish, Send
from draft_node.core.counts import Statistics
from draft_node.core.drafts.draft_stream import DraftStream
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.resting import Resting
from draft_node.core.generation import Generation
from draft_node.core.text import Text
from goodspeed.drafting.proposing import Proposed
from goodspeed.serving.measuring.story import Story, Transitions, follow
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Close, Redirect, Refusal, Verdict

MAX_REFUSALS = 20
"""Consecutive refusals without a token between them that a session survives; a bad connection may cause a few."""

REOPENED_S, MOST_REOPENED_S = 0.1, 1.0
"""Backoff of reopenings after consecutive refusals: the wait before the second reopening, doubled each time, and its
maximum. The first reopening follows at once, because after a failed round the verify node asks for it."""

RESEND_S, MAX_RESEND_S = 1.0, 8.0
"""Limits of the time after which an unanswered message is sent again, in seconds."""

SMOOTHING = 0.25  # of the answer time

FATAL = frozenset(
    {
        *("prompt", "vocabulary", "unsupported", "constraint", "not_owner", "malformed", "too_large", "failed"),
        "not_promised",
    }
)
"""Refusals that end the session."""

IGNORED = frozenset({"stale_epoch", "proposal"})
LATER = frozenset({"too_many_sessions", "too_many_prompt_logprobs", "draining"})


class State(Enum):
    """State of a session at the draft node."""

    OFFLINE = "offline"  # `session_router.py` opens it when it has a place in the queue, and a verify node is there
    OPENING = "opening"
    RUNNING = "running"  # the verify node sends verdicts, this node sends drafts
    DONE = "done"

    @property
    def is_open(self) -> bool:
        """True if a verify node should have this session open."""
        return self in (State.OPENING, State.RUNNING)


TRANSITIONS: Transitions[State] = {
    State.OFFLINE: {"open": State.OPENING, "disconnect": State.OFFLINE, "end": State.DONE},
    State.OPENING: {"verdict": State.RUNNING, "open": State.OPENING, "disconnect": State.OFFLINE, "end": State.DONE},
    State.RUNNING: {"verdict": State.RUNNING, "open": State.OPENING, "disconnect": State.OFFLINE, "end": State.DONE},
    State.DONE: {},
}
"""A verify node that goes away, redirects the session or asks to try later disconnects it; a refusal may open it again;
a finish reason, a failure or its user ends it."""


@dataclass(slots=True)
class RetransmissionTimer:
    """When a session's latest message is sent again.

    The answer time is measured only on messages sent once: after a retransmission it is unknown which copy was answered
    (Karn's rule; RFC 6298). If rounds wait for drafts, the answer time includes the round trip. The timeout is twice
    the smoothed answer time, within limits. A retransmission doubles it until a message sent once is answered: else
    copies would queue up on a slow link, delay the messages behind them, and so cause more copies.
    """

    silence_s: float = RESEND_S  # the timeout
    answer_s: float = 0.0  # smoothed time from a message to its answer; 0 until the first
    _said_at: float | None = None  # when the latest message was sent; None: its answer is not timed
    _repeated: bool = False

    def said(self, now: float, *, is_timed: bool) -> float:
        """Notes a new message; returns the seconds to wait for its answer.

        is_timed: the answer counts as a measurement. An OpenSession's does not: the session may wait for memory.
        """
        self._said_at = now if is_timed else None
        self._repeated = False
        return self.silence_s

    def again(self) -> float:
        """Notes a retransmission; returns the seconds to wait for an answer."""
        self._repeated = True
        self.silence_s = min(2 * self.silence_s, MAX_RESEND_S)
        return self.silence_s

    def answered(self, now: float) -> None:
        """Measures the answer time and resets the timeout, unless the message was retransmitted."""
        if self._repeated:
            return
        if self._said_at is not None:
            seconds = now - self._said_at
            self.answer_s += (seconds - self.answer_s) * (SMOOTHING if self.answer_s else 1.0)
        self.begin()

    def begin(self) -> None:
        """Resets the timeout to the one without retransmissions."""
        self.silence_s = min(max(RESEND_S, 2 * self.answer_s), MAX_RESEND_S)


@dataclass(slots=True, eq=False)
class Session:
    """The state machine of one request."""

    request: Generation
    ngrams: NgramDrafter | None = None  # drafts in addition to the draft model
    resting: Resting = field(default_factory=Resting)  # the draft model's, shared by all sessions
    num_parallel: int | None = 1  # tokens that the draft model drafts in one forward pass; None: there is no model
    state: State = State.OFFLINE
    target: str | None = None  # fingerprint of the target that writes the text; None until the first connection
    statistics: Statistics = field(default_factory=Statistics)
    resend_at: float = 0.0  # time of the next `tick` that does something
    promised: bool | None = None  # whether the newest verdict promises the SLO; None: no information
    num_hops: int = 0  # redirects since its latest token
    opens_at: float = 0.0  # no opening before this time, after refusals in a row
    text: Text = field(init=False)
    stream: DraftStream = field(init=False)
    _timer: RetransmissionTimer = field(default_factory=RetransmissionTimer)
    _num_refused: int = 0  # refusals in a row
    story: Story = field(default_factory=Story)  # of all sessions

    def __post_init__(self) -> None:
        self.target = self.request.target
        self.text = Text(self.request)
        self.stream = DraftStream.of(self.request, self.ngrams, self.resting, self.num_parallel)

    @property
    def epoch(self) -> int:
        return self.stream.epoch

    @property
    def tokens(self) -> list[int]:
        return self.text.tokens

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def is_open(self) -> bool:
        return self.state.is_open

    # -- events ----------------------------------------------------------------------------------------------------

    def connect(self, now: float, welcome: Welcome) -> list[Action]:
        """Opens the session at a connected verify node, or ends the session if the node cannot serve it."""
        if self.done:
            return []
        end = self.text.end_at(welcome, self.target)
        self.target = welcome.target_fingerprint if self.target is None else self.target
        if end is None:
            self.stream.meet(welcome)
            return self._open(now)
        self._enter("end", now)  # the verify node does not know the session: nothing has to be closed there
        return [end]

    def _open(self, now: float) -> list[Action]:
        """Sends OpenSession with the committed tokens, and has the draft model prefill the text."""
        self.promised = None
        self._timer.begin()
        self._enter("open", now)
        self._expect_answer(now)
        prefill = self.stream.begin(self.tokens)
        return [Send(self.text.open(self.epoch, now, num_hops=self.num_hops)), *prefill]

    def disconnect(self) -> None:
        """Waits for `connect`, as the verify node went away or has no room; retains prompt and committed tokens."""
        if not self.done:
            self._enter("disconnect")

    def redirected(self, redirect: Redirect) -> bool:
        """Takes a redirect: the verify node closed the session and names another node. False: outdated redirect."""
        if redirect.epoch != self.epoch or not self.is_open:
            return False
        self.num_hops = min(max(redirect.hops, self.num_hops + 1), MAX_HOPS)
        self.disconnect()
        return True

    def receive(self, message: Verdict | Refusal, now: float) -> list[Action]:
        """Handles a verdict or refusal; ignores one of another epoch, or while the session is not open."""
        if message.epoch != self.epoch or not self.is_open:
            return []
        return self._apply(message, now) if isinstance(message, Verdict) else self._refused(message, now)

    def proposed(self, proposal: Proposed) -> list[Action]:
        """Handles a proposal of the draft model; ignores one that answers an outdated request."""
        self.stream.answered()
        is_latest = (proposal.epoch, proposal.round) == (self.epoch, self.stream.round)
        if self.state is not State.RUNNING or not is_latest:
            return []
        return self.stream.drafted(proposal, self.tokens)

    def tick(self, now: float) -> list[Action]:
        """Sends, after a silence, the acknowledgement and the newest draft again."""
        if now < self.resend_at or not self.is_open:
            return []
        self.resend_at = now + self._timer.again()
        self.statistics.num_resends += 1
        self.story.note(self.request.session_id, "resend", len(self.tokens), self.state, now)
        return self.stream.repeat(self.tokens)

    def cancel(self) -> list[Action]:
        """Ends the session after its user left."""
        was_open = self.is_open
        if not self.done:
            self._enter("end")
        return [Send(Close(self.request.session_id, self.epoch))] if was_open else []

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _apply(self, verdict: Verdict, now: float) -> list[Action]:
        """Applies a verdict's new tokens exactly once; requests earlier tokens that are missing."""
        if verdict.base_len > len(self.tokens):
            return [Send(self.stream.acknowledgement(self.tokens))] if self.text.asks_for_gap() else []
        if self.text.is_exceeded_by(verdict):
            return self._end(Fail("failed", "the verify node sent more tokens than max_tokens; tell its operator"))
        new = self.text.apply(verdict, now)
        if new is None:
            return []
        self.num_hops = 0
        self.promised = verdict.promised
        num_new = len(new.tokens)
        self.statistics.count(verdict, num_new)
        self.stream.observe(verdict, num_new)
        actions = self._go_on(verdict, now)
        return [new, *actions] if num_new or new.prompt_logprobs is not None else actions

    def _go_on(self, verdict: Verdict, now: float) -> list[Action]:
        self._num_refused = 0
        self._timer.answered(now)
        if verdict.finish_reason is not None:
            return self._end(Finish(verdict.finish_reason))
        self._enter("verdict", now)
        self._expect_answer(now)
        return self.stream.answer(verdict, self.tokens)

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refused(self, refusal: Refusal, now: float) -> list[Action]:
        self.statistics.num_refusals += 1
        self.story.note(self.request.session_id, f"refused as {refusal.code}", len(self.tokens), self.state, now)
        if refusal.code in IGNORED:
            return []
        if refusal.code in LATER:
            self._num_refused = 0
            self.disconnect()
            return []
        self._num_refused += 1
        if refusal.code not in FATAL and self._num_refused <= MAX_REFUSALS:
            if self._num_refused == 1:
                return self._open(now)
            self.opens_at = now + min(REOPENED_S * 2.0 ** (self._num_refused - 2), MOST_REOPENED_S)
            self.disconnect()
            return [Send(Close(self.request.session_id, self.epoch))]  # it may still be open there
        return self._end(Fail(refusal.code, f"{refusal.what}; {refusal.what_to_do}"))

    def _end(self, end: Finish | Fail) -> list[Action]:
        self._enter("end")
        return [Send(Close(self.request.session_id, self.epoch)), end]

    def _enter(self, event: str, now: float | None = None) -> None:
        session_id = self.request.session_id
        self.state = follow(TRANSITIONS, self.state, event, session_id, self.story)
        self.story.note(session_id, event, len(self.tokens), self.state, now)

    def _expect_answer(self, now: float) -> None:
        self.resend_at = now + self._timer.said(now, is_timed=self.state is State.RUNNING)
