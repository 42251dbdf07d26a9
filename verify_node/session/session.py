"""A session on the verify node: one generation's text, its draft, its phase, and every transition between phases.

All changes of a session are methods here; no other module writes its fields (`tests/house/test_one_writer.py`).
`phase.py` shows the phases, `state.py` lists the fields.
"""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from goodspeed.fair.estimators import AcceptanceEstimator, smoothed
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import Draft, OpenSession, TokenLogprobs, Verdict
from verify_node.session.client import ANSWER_TOKENS, Peer
from verify_node.session.drafted import Drafted
from verify_node.session.phase import Phase, WrongPhase
from verify_node.session.state import MAX_RETURNS, SessionState
from verify_node.slo.deadline import Cause, Deadline

SMOOTHING = 0.2
"""Smoothing step of round trips, and of the durations of rounds."""

LATE_TIMES, LEAST_LATE_S, MOST_LATE_S = 8.0, 3.0, 10.0
"""A draft is late after LATE_TIMES times its usual time, within two bounds: at least LEAST_LATE_S, so that a lost
message can be repeated, and at most MOST_LATE_S, the longest time that a draft may delay rounds."""


@dataclass(slots=True, eq=False)
class Session(SessionState):
    """One generation: its text so far, its draft node's state, and its permissions."""

    @property
    def shares(self) -> bool:
        """True if other sessions may share the pages of its text."""
        return bool(self.prefix_scope and self.opened.cache_salt)

    @classmethod
    def open(
        cls,
        opened: OpenSession,
        peer: Peer,
        now: float,
        *,
        acceptance: AcceptanceEstimator,
        admitted: int,
        context_len: int,
        deadline: Deadline | None,
        compiles: bool,
    ) -> "Session":
        """Opens a session that continues its draft node's text. compiles: its constraint must be compiled first."""
        tokens = [*opened.prompt, *opened.committed]
        return cls(
            opened=opened,
            peer_id=peer.peer_id,
            client=peer.client,
            acceptance=acceptance,
            acceptance_bound=peer.client.acceptance_bound.begin(),
            round_trip_s=peer.client.round_trip_s,
            tokens=tokens,
            admitted=admitted,
            acked=len(tokens),
            limit=min(len(opened.prompt) + opened.max_tokens, context_len),
            arrived_at=now,
            ready_since=now,
            heard_at=now,
            moved_at=now,
            prompt_logprobs=[] if opened.num_prompt_logprobs is not None else None,
            deadline=deadline,
            phase=Phase.COMPILING if compiles else Phase.OPENED,
            prefix_scope=prefix_scope(peer, opened),
        )

    # -- its draft node speaks -------------------------------------------------------------------------------------

    def continue_from(self, old: "Session") -> None:
        """Takes over the old session's age and estimates, and its arrival if it keeps its place."""
        self.admitted = old.admitted
        if self.goes_on(old):
            self.arrived_at, self.num_returns = old.arrived_at, old.num_returns + 1
        self.acceptance, self.acceptance_bound = old.acceptance, old.acceptance_bound
        self.round_trip_s, self.tokens_per_round = old.round_trip_s, old.tokens_per_round
        asked = self.opened.prompt, self.opened.num_prompt_logprobs
        is_same = asked == (old.opened.prompt, old.opened.num_prompt_logprobs)
        if self.prompt_logprobs is not None and is_same and old.last_verdict is None:
            self.prompt_logprobs = list(old.prompt_logprobs or ())  # once told, only `repeat` may tell them again

    def goes_on(self, old: "Session") -> bool:
        """True if it keeps the old session's place: it has its text, or a prefix of it that includes the prompt."""
        has_text = self.opened.prompt == old.opened.prompt and self.tokens == old.tokens[: len(self.tokens)]
        return has_text and old.num_returns < MAX_RETURNS

    def heard(self, peer_id: bytes, now: float) -> None:
        """Records a message about it from its draft node, on this connection."""
        self.peer_id, self.heard_at = peer_id, now

    def move_to(self, peer_id: bytes) -> None:
        """Moves it to its draft node's new connection."""
        self.peer_id = peer_id

    def admit(self, *, promised: bool) -> None:
        """Sets whether its objectives are promised."""
        self.promised = promised

    def take_draft(self, draft: Draft, now: float) -> None:
        """Takes an arriving draft; a draft for more of the text replaces one for less."""
        if self.finished or (self.drafted is not None and self.drafted.outdates(draft)):
            return
        awaited, is_new = self.awaits_draft, draft.base_len == len(self.tokens)
        drafted = Drafted.read(draft, self.tokens, self.may_draft if self.allows_drafts_of(draft.source) else 0)
        if drafted is not None and drafted.tokens:
            self.client.note_draft(draft.source, drafted.depth)
        if is_new and draft.tokens:
            is_whole = draft.proposal is not None  # under the ratio rule
            if draft.source == "model" or (is_whole and not self.client.has_model):
                self.model_calls.answered(now, len(draft.tokens) + 1 if is_whole else ANSWER_TOKENS)
            else:
                self.model_calls.answered_by_index(now, only=is_whole)
        self.drafted = drafted
        if is_new and draft.complete:
            self.client.complete_draft()
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

    def repeat(self, base_len: int) -> Verdict | None:
        """Returns all unacknowledged tokens from base_len on, in one verdict; None before the first verdict."""
        if self.last_verdict is None or base_len > len(self.tokens):
            return None
        self.num_repeats += 1
        self.sent.clear()  # it is unknown which verdict an answer belongs to
        first = max(base_len, self.acked)  # a later message that arrived first may have acknowledged more
        tokens = tuple(self.tokens[first:])
        return replace(
            self.last_verdict,
            base_len=first,
            tokens=tokens,
            logprobs=self.logprobs_from(first),
            prompt_logprobs=self.told_of_prompt,
        )

    # -- its constraint is compiled --------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Lets rounds advance it, after its constraint was compiled."""
        self._enter_phase("begin", (Phase.COMPILING,), Phase.OPENED)
        self.ready_since = now

    # -- a round moves it ------------------------------------------------------------------------------------------

    def go_without(self, now: float, number: int) -> None:
        """Marks the draft late in round `number`: rounds proceed without it, and no longer wait for its client's."""
        self.waits, self.ready_since = False, now
        self.client.miss_draft(number)
        self._wait_for("queue", now)

    def enter(self, now: float, *, is_prefill: bool, num_cached: int) -> None:
        """Starts a round in which it takes part. num_cached: tokens of its text that need no prefill."""
        self._wait_for("prefill" if is_prefill else "round", now)
        if self.num_cached is None:
            self.num_cached = min(num_cached, len(self.opened.prompt))

    def lack_pages(self, now: float) -> None:
        """Starts a round without it, for lack of pages."""
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
        self._enter_phase("commit", (Phase.OPENED, Phase.RUNNING), Phase.RUNNING)
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
        self._limit_drafts()
        self.tokens_per_round = smoothed(self.tokens_per_round, len(taken), SMOOTHING)
        if self.deadline is not None:
            self.deadline.delivered(len(taken), self.moved_at)  # `advance` has set it to the round's end
        self.logprobs += logprobs[: len(taken)]
        if self.drafted is not None:
            self.drafted = None if self.finished else self.drafted.after(taken)
        if self.own is not None:
            self.own = None if self.finished else self.own.after(taken)
        return tuple(taken)

    def take_own(self, drafted: Drafted) -> None:
        """Takes the verify node's own draft after the current text."""
        self.own = None if self.finished else drafted

    def must_follow(self, tokens: tuple[int, ...]) -> None:
        """Records the tokens that its constraint forces after its current text."""
        self.forced = (len(self.tokens), tokens) if tokens and not self.finished else None

    def observe_draft(self, agreement: float, num_observed: int, num_accepted: int, num_drafted: int) -> None:
        """Eq. (3): updates estimates with a verified draft. agreement: over its num_observed tokens.

        num_accepted, num_drafted: first choices up to the text's end, which update the bound.
        """
        for known in (self, self.client):
            known.acceptance.observe(agreement, num_observed)
            known.acceptance_bound.observe(num_accepted, num_drafted)

    def observe_model(self, num_accepted: int, drafted: bool | None) -> None:
        """Updates the gain of model drafts after a round. drafted: `model_drafted`, when the round was packed."""
        self.model_calls.observe(num_accepted, drafted)

    def note_wrong(self, is_wrong: bool) -> None:
        """Notes whether its latest round rejected a first choice."""
        self.was_wrong = is_wrong

    def permit(self, may_draft: int, number: int) -> None:
        """Sets the number of tokens that may be drafted beyond its text, by verify round `number`."""
        self.may_draft = may_draft
        if may_draft:
            self.zero_since = None
        elif self.zero_since is None:
            self.zero_since = number

    def tell(self, verdict: Verdict, now: float, *, waits: bool, round_s: float) -> None:
        """Records an outgoing verdict, which is retained to be repeated and starts the wait for its answer.

        waits: rounds wait until its draft is complete, if the verdict permits a draft. round_s: duration of a round.
        """
        self.last_verdict = verdict if verdict.prompt_logprobs is None else replace(verdict, prompt_logprobs=None)
        self.needs_draft = self.drafted is None
        self.model_calls.verdict_goes_out(now, calls=verdict.may_draft > 0 and self.drafted is None)
        self.waits = waits and verdict.may_draft > 0
        if self.awaits_draft:
            self._wait_for("draft", now)
        elif self.deadline is not None and not self.can_move(round_s):
            self._wait_for("network", now)
        self.sent.append((len(self.tokens), now))
        if self.waits:
            usual_s = self.client.answer_s or MOST_LATE_S
            self.late_at = now + min(MOST_LATE_S, max(LEAST_LATE_S, LATE_TIMES * usual_s))

    # -- within ----------------------------------------------------------------------------------------------------

    def _wait_for(self, cause: Cause, now: float) -> None:
        """Attributes the time from now on to this cause, if it has objectives."""
        if self.deadline is not None:
            self.deadline.turn_to(cause, now)

    def _enter_phase(self, transition: str, allowed: Collection[Phase], phase: Phase) -> None:
        """Moves to another phase; raises WrongPhase if the transition is not permitted in the current phase."""
        if self.phase not in allowed:
            raise WrongPhase(self.session_id, self.phase, transition)
        self.phase = phase

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason, self.phase = reason, Phase.FINISHED


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
