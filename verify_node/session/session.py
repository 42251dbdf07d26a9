"""A session on the verify node: one generation's text, its draft, its phase, and every transition between phases.

All changes of a session are methods here, or in `draft_state.py`, which has what is drafted beyond the text; no other
module writes its fields (`tests/house/test_one_writer.py`). `phase.py` shows the phases.
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from goodspeed.drafting.sources import MODEL, NGRAM, OWN, Source, permits
from goodspeed.fair.estimators import AcceptanceEstimator, smoothed
from goodspeed.serving.measuring.story import Story, follow
from goodspeed.wire import probabilities
from goodspeed.wire.fields import FinishReason, Verification
from goodspeed.wire.messages import Draft, OpenSession, TokenLogprobs, Verdict
from verify_node.clients.acceptance_bound import AcceptanceBound
from verify_node.clients.client import Client, Peer
from verify_node.session.deadline import Cause, Deadline
from verify_node.session.draft_state import DraftState
from verify_node.session.phase import TRANSITIONS, Phase

SMOOTHING = 0.2
"""Smoothing step of round trips, and of the durations of rounds."""

WINDOW, MAX_WINDOW = 16, 256
"""Overdue tokens at which a session waits for its draft node: the least, and for long round trips the most."""

MAX_RETURNS = 8
"""Reopenings for which a text keeps its place: every text must end some time, or others could wait for ever."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Session:
    """One generation: its text so far, its draft node's state, and its permissions."""

    opened: OpenSession
    peer_id: bytes
    client: Client
    acceptance: AcceptanceEstimator
    admitted: int  # order of opening: the oldest is preempted last
    limit: int  # position at which the session ends for its length
    arrived_at: float = 0.0  # when its text was first asked for here
    phase: Phase = Phase.OPENED
    drafts: DraftState = field(init=False)
    acceptance_bound: AcceptanceBound = field(init=False)  # from its delivered tokens
    session_id: bytes = field(init=False)
    epoch: int = field(init=False)
    tokens: list[int] = field(init=False)  # prompt and all committed tokens
    acked: int = field(init=False)  # the draft node has applied all tokens below this position
    num_given: int = field(init=False)  # tokens of its text when it was opened
    max_length: int = field(init=False)  # longest draft of which every token, and one token more, can be delivered
    last_verdict: Verdict | None = None
    finish_reason: FinishReason | None = None
    num_returns: int = 0  # times that it was reopened since it arrived, and kept its place
    ready_since: float = field(init=False)
    heard_at: float = field(init=False)  # latest time that its draft node mentioned it
    moved_at: float = field(init=False)  # latest time that it was opened, got tokens, or acknowledged some
    num_repeats: int = 0  # verdicts repeated since its latest new acknowledgement
    round_trip_s: float = field(init=False)  # verdict out to draft or Ack in, smoothed
    tokens_per_round: float = 1.0  # smoothed
    sent: deque[tuple[int, float]] = field(default_factory=deque)  # (text length, time) of unacknowledged verdicts
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the unacknowledged tokens, if requested
    prompt_logprobs: list[TokenLogprobs] | None = field(init=False)  # of what is prefilled; None: not asked, or acked
    deadline: Deadline | None = None  # None: no objectives
    promised: bool | None = None  # whether its objectives are promised; None: undecided
    was_promised: bool | None = None  # whether they were the last time that this was decided before it was reopened
    was_judged: bool = False  # its text was complete before it was reopened
    prefix_scope: bytes = b""  # sessions of the same scope share prefilled pages; empty: none are shared or retained
    story: Story = field(default_factory=Story)  # of all sessions
    num_cached: int | None = None  # prompt tokens that were cached before its first round; None before that
    num_known: int = 0  # length of its text, with the prompt, before it was reopened
    lacks_pages: bool = False  # in the latest round that it could have taken part in

    def __post_init__(self) -> None:
        """The session continues its draft node's text."""
        opened, client = self.opened, self.client
        self.session_id, self.epoch = opened.session_id, opened.epoch
        self.tokens = [*opened.prompt, *opened.committed]
        self.num_given = self.acked = len(self.tokens)
        self._limit_drafts()
        self.drafts, self.acceptance_bound = DraftState(client), client.acceptance_bound.begin()
        self.ready_since = self.heard_at = self.moved_at = self.arrived_at
        self.round_trip_s = client.round_trip_s
        self.prompt_logprobs = None if opened.num_prompt_logprobs is None else []

    def _limit_drafts(self) -> None:
        """Sets `max_length` for the current text."""
        self.max_length = max(0, min(self.opened.max_draft, self.limit - len(self.tokens) - 1))

    # -- what follows from its state ----------------------------------------------------------------------------------

    @property
    def shares(self) -> bool:
        """True if other sessions may share the pages of its text."""
        return bool(self.prefix_scope and self.opened.cache_salt)

    @property
    def verification(self) -> Verification:
        """Verification rule of its next round: that of its opening, or match once its client is proven to lie.

        Match does not use the distributions that the client sends. The switch keeps texts exact: it depends only on
        drafts already verified, and match has noise of its own.
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
        return not self.finished and self.drafts.is_awaited

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
        return is_known and self.acked < len(self.tokens) and self.drafts.newest is None

    @property
    def answered(self) -> bool | None:
        """True if its draft node has answered the newest verdict; None if rounds need not wait for that answer."""
        return self.acked == len(self.tokens) if self.drafts.is_needed and self.takes_drafts else None

    @property
    def expects_model(self) -> bool:
        """True if its draft model must draft anew, and is known to answer."""
        is_known = self.drafts.timer.is_called and self.client.answer_s > 0.0
        return is_known and self.takes_drafts and self.drafts.newest is None

    @property
    def model_drafted(self) -> bool | None:
        """True if a draft model that had to draft anew has done so; None if no new draft was needed."""
        if not self.drafts.timer.is_called or not self.takes_drafts:
            return None
        return self.drafts.newest is not None and bool(self.drafts.newest.tokens)

    @property
    def answer_due_at(self) -> float:
        """Time at which the answer to its newest verdict should arrive."""
        return self.sent[-1][1] + self.round_trip_s if self.sent else 0.0

    @property
    def allows_ngrams(self) -> bool:
        """True if n-gram drafts may be verified: not under ratio, where tokens must be sampled, or certain."""
        return permits(self.opened.drafter, NGRAM) and self.verification == "match"

    @property
    def draws_at_random(self) -> bool:
        return self.opened.sampling.temperature > 0.0

    @property
    def uses_model(self) -> bool:
        """True if its draft node's model may draft for it."""
        return permits(self.opened.drafter, MODEL) and self.client.has_model and self.opened.max_draft > 0

    @property
    def allows_own(self) -> bool:
        """True if the verify node's draft model may draft for it: that model applies no logit rules or constraints."""
        opened = self.opened
        is_plain = opened.logit_rules is None and opened.constraint is None
        return is_plain and permits(opened.drafter, OWN) and self.verification == "match" and self.max_length > 0

    def allows_drafts_of(self, source: Source) -> bool:
        return permits(self.opened.drafter, source)

    def window(self, round_s: float) -> int:
        """Returns the overdue tokens permitted: 16, or the tokens of two round trips' rounds; at most 256."""
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

    # -- its draft node speaks -------------------------------------------------------------------------------------

    def continue_from(self, old: "Session") -> None:
        """Takes over the old session's age and estimates, and its arrival if it keeps its place."""
        self.admitted = old.admitted
        if self._has_text_of(old):
            self.num_known = max(old.num_known, len(old.tokens))
            self.was_judged = old.was_judged or old.finished
            self.was_promised = old.was_promised if old.promised is None else old.promised
        if self.goes_on(old):
            self.arrived_at, self.num_returns = old.arrived_at, old.num_returns + 1
        self.acceptance, self.acceptance_bound = old.acceptance, old.acceptance_bound
        self.round_trip_s, self.tokens_per_round = old.round_trip_s, old.tokens_per_round
        asked = self.opened.prompt, self.opened.num_prompt_logprobs
        is_same = asked == (old.opened.prompt, old.opened.num_prompt_logprobs)
        if self.prompt_logprobs is not None and is_same and old.last_verdict is None:
            self.prompt_logprobs = list(old.prompt_logprobs or ())  # once told, only `repeat` may tell them again

    def goes_on(self, old: "Session") -> bool:
        """True if it keeps the old session's place, as it does MAX_RETURNS times."""
        return self._has_text_of(old) and old.num_returns < MAX_RETURNS

    def _has_text_of(self, old: "Session") -> bool:
        """True if it has the old session's text, or a prefix of it that includes the prompt."""
        return self.opened.prompt == old.opened.prompt and self.tokens == old.tokens[: len(self.tokens)]

    def heard(self, peer_id: bytes, now: float) -> None:
        """Records a message about it from its draft node, on this connection."""
        self.peer_id, self.heard_at = peer_id, now

    def move_to(self, peer_id: bytes) -> None:
        self.peer_id = peer_id

    def admit(self, *, promised: bool) -> None:
        self.promised = promised

    @property
    def acceptance_rate(self) -> float:
        """The estimated acceptance rate, limited by the acceptance bound."""
        return min(self.acceptance.value, self.acceptance_bound.most)

    def take_draft(self, draft: Draft, now: float) -> None:
        """Takes an arriving draft; a draft for more of the text replaces one for less."""
        if self.finished:
            return
        if self.verification == "match" and not draft.probabilities:  # else nothing would tell how false it is
            claimed = probabilities.code(self.acceptance_rate)
            draft = replace(draft, probabilities=bytes([claimed]) * len(draft.tokens))
        awaited = self.awaits_draft
        most = self.drafts.may_draft if self.allows_drafts_of(draft.source) else 0
        self.drafts.take(draft, self.tokens, now, most)
        self.story.note(self.session_id, "draft", len(draft.tokens), self.phase, now)
        if awaited and not self.awaits_draft:
            self.ready_since = now
            self._wait_for("queue", now)

    def acknowledge(self, base_len: int, now: float, round_s: float) -> None:
        """Records that tokens below base_len are applied; measures the round trip of the newest verdict within them.

        base_len: more than before. round_s: duration of a round. A session whose window was full is ready from now on.
        """
        if not self.can_move(round_s):
            self.ready_since = now
            self._wait_for("draft" if self.awaits_draft else "queue", now)
        self.acked, self.num_repeats, self.moved_at = base_len, 0, max(self.moved_at, now)
        if base_len > self.num_given:
            self.prompt_logprobs = None  # its draft node has the first verdict
        if self.logprobs:
            del self.logprobs[: max(0, len(self.logprobs) - self.num_unacknowledged)]
        sent_at = None
        while self.sent and self.sent[0][0] <= base_len:
            sent_at = self.sent.popleft()[1]
        if sent_at is not None:
            self.round_trip_s = smoothed(self.round_trip_s, max(0.0, now - sent_at), SMOOTHING)
            self.client.observe_round_trip(self.round_trip_s)

    def repeat(self, told: Verdict, base_len: int) -> Verdict:
        """Returns all unacknowledged tokens from base_len on, in one verdict. told: the last one."""
        self.num_repeats += 1
        self.story.note(self.session_id, "repeat from", base_len, self.phase)
        self.sent.clear()  # it is unknown which verdict an answer belongs to
        first = max(base_len, self.acked)  # a later message that arrived first may have acknowledged more
        tokens = tuple(self.tokens[first:])
        return replace(
            told,
            base_len=first,
            tokens=tokens,
            logprobs=self.logprobs_from(first),
            prompt_logprobs=self.told_of_prompt,
        )

    # -- its constraint is compiled --------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Lets rounds advance it, after its constraint was compiled."""
        self._enter_phase("begin")
        self.story.note(self.session_id, "begin", len(self.tokens), self.phase, now)
        self.ready_since = now

    # -- a round moves it ------------------------------------------------------------------------------------------

    def go_without(self, now: float, number: int) -> None:
        """Marks the draft late in round `number`: rounds proceed without it, and no longer wait for its client's."""
        self.ready_since = now
        self.drafts.go_without(number)
        self.story.note(self.session_id, "go without a draft in round", number, self.phase, now)
        self._wait_for("queue", now)

    def enter(self, now: float, *, is_prefill: bool, num_cached: int) -> None:
        """Starts a round in which it takes part. num_cached: tokens of its text that need no prefill."""
        self._wait_for("prefill" if is_prefill else "round", now)
        if self.num_cached is None:
            self.num_cached = min(num_cached, len(self.opened.prompt))

    def note_pages(self, now: float, *, lacks: bool) -> None:
        """Records whether the round that begins found too few pages for it; then it waits for memory."""
        if lacks and not self.lacks_pages:  # else many such rounds would push all other events out of its story
            self.story.note(self.session_id, "lack pages for tokens", len(self.tokens), self.phase, now)
        self.lacks_pages = lacks
        if lacks:
            self._wait_for("memory", now)

    def advance(self, now: float) -> None:
        """Ends a round in which it took part."""
        self.ready_since = self.moved_at = now
        self._wait_for("queue", now)

    def take_prompt_logprobs(self, logprobs: tuple[TokenLogprobs, ...]) -> None:
        """Appends the logprobs of the prompt tokens that a round prefilled next."""
        if self.prompt_logprobs is not None:
            self.prompt_logprobs += logprobs

    def commit(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] = ()) -> tuple[int, ...]:
        """Appends the decided tokens up to the text's end, and returns those appended.

        The text ends before a stop id, or at its limit.
        """
        self._enter_phase("commit")
        taken: list[int] = []
        for token in tokens:
            if token in self.opened.stop_ids:
                self._finish("stop")
                break
            taken.append(token)
            if len(self.tokens) + len(taken) >= self.limit:
                self._finish("length")
                break
        self.tokens += taken
        self.story.note(self.session_id, "commit", len(taken), self.phase)
        self._limit_drafts()
        self.tokens_per_round = smoothed(self.tokens_per_round, len(taken), SMOOTHING)
        if self.deadline is not None:
            self.deadline.delivered(len(taken), self.moved_at)  # `advance` has set it to the round's end
        self.logprobs += logprobs[: len(taken)]
        self.drafts.follow(taken, finished=self.finished)
        return tuple(taken)

    def observe_draft(self, agreement: float, num_observed: int, num_accepted: int, num_drafted: int) -> None:
        """Updates estimates by Eq. (3) with a verified draft. agreement: sum over its num_observed tokens.

        num_accepted, num_drafted: first choices up to the text's end, which update the bound.
        """
        self.acceptance.observe(agreement, num_observed)
        self.acceptance_bound.observe(num_accepted, num_drafted)
        self.client.observe_draft(agreement, num_observed, num_accepted, num_drafted)

    def tell(self, verdict: Verdict, now: float, *, waits: bool, round_s: float) -> None:
        """Records an outgoing verdict, which is retained to be repeated and starts the wait for its answer.

        waits: rounds wait until its draft is complete, if the verdict permits a draft. round_s: duration of a round.
        """
        self.last_verdict = verdict if verdict.prompt_logprobs is None else replace(verdict, prompt_logprobs=None)
        self.drafts.call(verdict.may_draft, now, waits=waits)
        if self.awaits_draft:
            self._wait_for("draft", now)
        elif self.deadline is not None and not self.can_move(round_s):
            self._wait_for("network", now)
        self.sent.append((len(self.tokens), now))

    # -- within ----------------------------------------------------------------------------------------------------

    def _wait_for(self, cause: Cause, now: float) -> None:
        """Attributes the time from now on to this cause, if it has objectives."""
        if self.deadline is not None:
            self.deadline.turn_to(cause, now)

    def _enter_phase(self, event: str) -> None:
        """Follows the table of transitions; raises WrongTransition for an event that this phase does not have."""
        self.phase = follow(TRANSITIONS, self.phase, event, self.session_id, self.story)

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self._enter_phase("finish")


def prefix_scope(peer: Peer, opened: OpenSession) -> bytes:
    """Returns the scope in which sessions share pages: none may learn another user's text from its timing.

    Every scope contains the client's proven key and its name. Neither has a zero byte, so no two clients have the same
    scope. Within a client, the draft node's salt separates its users. Without a salt the scope is the session's own,
    for the case that it reopens. A session that wants prompt logprobs has no scope: all of its prompt must be
    prefilled.
    """
    if opened.num_prompt_logprobs is not None:
        return b""
    user = b"salt\0" + opened.cache_salt if opened.cache_salt else b"session\0" + opened.session_id
    return f"{peer.principal or ''}\0{peer.client.name}\0".encode() + user
