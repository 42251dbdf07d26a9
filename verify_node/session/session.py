"""A session on the verify node: one generation's text, its draft, its phase, and every transition between phases.

All that changes a session is a method here, and nobody else writes its fields (`tests/house/test_one_writer.py`).
`phase.py` draws the phases, `state.py` lists the fields. Knows nothing about messages' transport, tensors, memory, or
when rounds happen.
"""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from goodspeed.exact.positions import cut
from goodspeed.fair.smoothing import smoothed
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import Draft, Offer, TokenLogprobs, Verdict
from verify_node.session.client import limit_worth, moved_share
from verify_node.session.offered import Offered, depth
from verify_node.session.phase import Phase, WrongPhase
from verify_node.session.probe import Probe
from verify_node.session.state import WINDOW, SessionState
from verify_node.slo.ledger import Cause

SMOOTHING = 0.2
"""Smoothing step of round trips, and of the durations of rounds."""

AHEAD_SMOOTHING = 0.1
SHARE_SMOOTHING = 0.1


@dataclass(slots=True, eq=False)
class Session(SessionState):
    """One generation: its text so far, what its draft node has of it, and what it may do next."""

    @property
    def shares(self) -> bool:
        """Whether other sessions may find what was read of its text."""
        return bool(self.prefix_scope and self.opened.cache_salt)

    # -- its draft node speaks -------------------------------------------------------------------------------------

    def continue_from(self, old: "Session") -> None:
        """Takes over the old session's age and estimates."""
        self.admitted = old.admitted
        self.acceptance, self.acceptance_bound = old.acceptance, old.acceptance_bound
        self.share, self.round_trip_s, self.ahead_share = old.share, old.round_trip_s, old.ahead_share
        asked = self.opened.prompt, self.opened.num_prompt_logprobs
        if self.prompt_logprobs is not None and asked == (old.opened.prompt, old.opened.num_prompt_logprobs):
            self.prompt_logprobs = list(old.prompt_logprobs or ())

    def heard(self, peer_id: bytes, now: float) -> None:
        """Its draft node mentioned it, on this connection."""
        self.peer_id, self.heard_at = peer_id, now

    def move_to(self, peer_id: bytes) -> None:
        """Its draft node has another connection now."""
        self.peer_id = peer_id

    def admit(self, *, promised: bool) -> None:
        """What it is to keep is promised, or not."""
        self.promised = promised

    def take_draft(self, draft: Draft, now: float) -> None:
        """The draft that it awaits arrived; an empty one says that the draft node cannot draft now."""
        self._leave("take_draft", (Phase.AWAITING,), Phase.DRAFTED)
        if self.ledger is not None:
            self.ledger.drafted(draft.drafting_s, now)
        self.client.draft_arrived()
        self.draft, self.ready_since = draft, now
        self._drop_older_ahead(draft)
        self.cannot_draft = not draft.tokens
        if draft.tokens:
            self.client.observe_drafting(draft.drafting_s, len(draft.tokens))
            self._observe_ahead(False)
        self.acknowledge(draft.base_len, now - draft.drafting_s)

    def take_ahead(self, ahead: Draft, now: float) -> None:
        """A draft made ahead arrived: it is used at once if its verdict is made already, or kept if it may come true.

        Only the newest is kept, and only if the text may still grow to its base.
        """
        if ahead.round <= self.last_round or not ahead.tokens:
            return
        if self.awaits_draft and self._is_made_on_text(ahead):
            self._use_ahead(ahead)
            self.ready_since = now
            self._wait_for("queue", now)
            return
        newest = max(known.round if known else -1 for known in (self.draft, self.ahead))
        if (
            self.is_drafting
            and ahead.round > newest
            and 0 < ahead.base_len - len(self.tokens) <= (self.assigned or 0) + 1
        ):
            self.ahead = ahead

    def take_offer(self, offer: Offer, now: float) -> None:
        """Tokens that may follow the text arrived; an offer on more of the text replaces one on less."""
        self.client.note_offer(offer.source, depth(offer))
        if offer.source == "model" and offer.base_len == len(self.tokens):
            self.model_calls.answered(now)
        if self.offered is None or offer.base_len >= self.offered.made_on:
            self.offered = None if self.finished else Offered.read(offer, self.tokens)

    def acknowledge(self, base_len: int, at: float) -> None:
        """Everything below base_len is applied; the newest verdict that ends there tells the round trip."""
        if base_len > self.acked:
            self.num_repeats, self.moved_at = 0, max(self.moved_at, at)
        self.acked = base_len
        if base_len > len(self.opened.prompt) + len(self.opened.committed):
            self.prompt_logprobs = None  # its draft node has the first verdict
        del self.logprobs[: max(0, len(self.logprobs) - self.num_unacknowledged)]
        sent_at = None
        while self.sent and self.sent[0][0] <= base_len:
            sent_at = self.sent.popleft()[1]
        if sent_at is not None:
            self.round_trip_s = smoothed(self.round_trip_s, max(0.0, at - sent_at), SMOOTHING)
            self.client.observe_round_trip(self.round_trip_s)

    def acknowledge_only(self, base_len: int, window: int, now: float) -> None:
        """An Ack acknowledges more than was known; if the session's window was full, it is ready from now on."""
        if not self.is_ready(window):
            self.ready_since = now
            if self.phase is Phase.ADVANCING:
                self._wait_for("queue", now)
        self.acknowledge(base_len, now)

    def repeat(self, base_len: int) -> Verdict | None:
        """Everything from base_len on that is not acknowledged, in one verdict; None before the first verdict."""
        if self.last_verdict is None or base_len > len(self.tokens):
            return None
        self.num_repeats += 1
        self.sent.clear()  # which of the two verdicts an answer is to cannot be told
        first = max(base_len, self.acked)  # a later message that came sooner acknowledged more
        tokens = tuple(self.tokens[first:])
        return replace(
            self.last_verdict,
            base_len=first,
            tokens=tokens,
            logprobs=self.logprobs_from(first),
            prompt_logprobs=self.told_of_prompt,
        )

    # -- a round moves it ------------------------------------------------------------------------------------------

    def go_without(self, now: float, number: int, waiting_rounds: int) -> None:
        """Its draft is late in verify round `number`: it advances without; see `Client.miss_draft`."""
        self._leave("go_without", (Phase.AWAITING,), Phase.ADVANCING)
        self.client.miss_draft(number, waiting_rounds)
        self.assigned, self.cannot_draft, self.ready_since = 0, True, now
        self._wait_for("queue", now)

    def enter(self, now: float, *, reads_prompt: bool, num_cached: int) -> None:
        """A round begins in which it takes part. num_cached: tokens of its text that need not be read."""
        self._wait_for("prefill" if reads_prompt else "round", now)
        if self.num_cached is None:
            self.num_cached = min(num_cached, len(self.opened.prompt))

    def lack_memory(self, now: float) -> None:
        """A round begins without it, since it has no memory."""
        self._wait_for("memory", now)

    def advance(self, now: float) -> None:
        """A round in which it took part is done."""
        self.ready_since = self.moved_at = now
        self._wait_for("queue", now)

    def read_prompt(self, logprobs: tuple[TokenLogprobs, ...]) -> None:
        """A round read more of its prompt: the logprobs of the tokens that follow those known."""
        if self.prompt_logprobs is not None:
            self.prompt_logprobs += logprobs

    def commit(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] = ()) -> tuple[int, ...]:
        """Appends the decided tokens up to the text's end, and returns those appended.

        The text ends before a stop id, or at its limit.
        """
        self._leave("commit", (Phase.OPENED, Phase.DRAFTED, Phase.ADVANCING), Phase.COMMITTED)
        if self.draft is not None:
            self.last_round, self.draft = self.draft.round, None
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
        if self.ledger is not None:
            self.ledger.decided(len(taken), self.moved_at)  # `advance` has set it to the round's end
        self.logprobs += logprobs[: len(taken)]
        if self.offered is not None:
            self.offered = None if self.finished else self.offered.after(taken)
        return tuple(taken)

    def must_follow(self, tokens: tuple[int, ...]) -> None:
        """What the form of its output says must follow the text as it is now."""
        self.forced = (len(self.tokens), tokens) if tokens and not self.finished else None

    def observe_share(self, took_part: bool) -> None:
        """Smooths in how many rounds it takes part."""
        self.share = self.share + SHARE_SMOOTHING * (took_part - self.share)

    def observe_draft(self, agreement: float, num_drafted: int, num_accepted: int, num_tried: int) -> None:
        """Eq. (3): its draft was verified. num_accepted of num_tried tokens count for the acceptance bound."""
        for known in (self, self.client):
            known.acceptance.observe(agreement, num_drafted)
            known.acceptance_bound.observe(num_accepted, num_tried)

    def observe_model_offer(self, num_accepted: int, offered: bool | None) -> None:
        """A round is done. offered: `model_offered`, when it was packed."""
        self.model_calls.observe(num_accepted, offered)

    def judge_probe(self, did_well: bool) -> None:
        """If its draft was a probe: whether so much of it agreed that the next one is worth asking for."""
        if self.probe is Probe.ASKED:
            self.probe = Probe.ACCEPTED if did_well else Probe.NONE

    def begin_probe(self, number: int, max_worth: float | None = None) -> None:
        """A probe is due in verify round `number`; if none is made, the wait for the next one begins.

        max_worth: drafted tokens that the estimates may rest on from now on, because they are old; None: any number.
        """
        self.cannot_draft = False
        limit_worth(self.acceptance, max_worth)
        self.zero_since = number
        self.client.begin_probe(number, max_worth)

    def try_again(self) -> None:
        """Its draft model may draft again by now: the policy may assign it a length."""
        self.cannot_draft = False

    def assign(self, length: int, probe: int, number: int) -> int:
        """The next draft length: what the policy gives, or else what a probe may take; 0 for none.

        A client's first draft is a probe, too. Sessions may be too short for a probe: one that begins at length 0 waits
        from when its client's did.
        """
        assigned = max(length, probe)
        self._leave("assign", (Phase.COMMITTED,), Phase.AWAITING if assigned else Phase.ADVANCING)
        is_first = length > 0 and not self.client.draft_s_per_token
        in_a_row = self.probe is Probe.ACCEPTED
        self.assigned = assigned
        self.probe = Probe.ASKED if is_first or (probe > 0 and not length) else Probe.NONE
        if length:
            self.zero_since = None
            self.client.note_length()
        elif probe:
            self.zero_since = None
            self.client.note_probe(in_a_row)
        else:
            since = self.client.note_zero(number)
            self.zero_since = since if self.zero_since is None else self.zero_since
        return assigned

    def expect(self, hope: float) -> int | None:
        """Its next draft was made ahead with probability `hope`: the one that is kept becomes the next, if it may.

        Returns the round of a draft that had to be dropped, else None.
        """
        self.hope = hope
        ahead, self.ahead = self.ahead, None
        if ahead is None:
            return None
        if not self._is_made_on_text(ahead) or not self.awaits_draft:
            return ahead.round
        self._use_ahead(ahead)
        return None

    def tell(self, verdict: Verdict, now: float, late_at: float, window: int = WINDOW) -> None:
        """Its verdict goes out now: it is kept in case it must be sent again, and its answer is awaited."""
        self.last_verdict, self.may_draft = verdict, verdict.may_draft
        self.model_calls.verdict_goes_out(now, calls=verdict.may_draft > 0 and self.offered is None)
        if self.awaits_draft:
            self._wait_for("draft", now)
        elif not self.is_ready(window):
            self._wait_for("network", now)
        self.sent.append((len(self.tokens), now))
        self.due_at, self.late_at = now + self.answer_s, late_at

    # -- within ----------------------------------------------------------------------------------------------------

    def _wait_for(self, cause: Cause, now: float) -> None:
        """Accounts for the time until now, if it has objectives."""
        if self.ledger is not None:
            self.ledger.turn_to(cause, now)

    def _leave(self, transition: str, allowed: Collection[Phase], phase: Phase) -> None:
        """Goes to another phase; WrongPhase if this transition does not lead there from where it is."""
        if self.phase not in allowed:
            raise WrongPhase(self.session_id, self.phase, transition)
        self.phase = phase

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason, self.phase = reason, Phase.FINISHED

    def _is_made_on_text(self, draft: Draft) -> bool:
        return draft.base_len == len(self.tokens) and draft.base_digest == self.base_digest()

    def _use_ahead(self, ahead: Draft) -> None:
        """Cut to what is assigned, since it was made before that was known."""
        self._leave("take_ahead", (Phase.AWAITING,), Phase.DRAFTED)
        self._observe_ahead(True)
        self.draft = _cut(ahead, self.assigned or 0)
        self._drop_older_ahead(ahead)
        self.cannot_draft = False

    def _drop_older_ahead(self, draft: Draft) -> None:
        """Its draft node has given up a draft made ahead when it sends one of a later round.

        What was made ahead could come true all the same: of a draft that is cut the target may draw the rest itself.
        """
        if self.ahead is not None and self.ahead.round <= draft.round:
            self.ahead = None

    def _observe_ahead(self, came_true: bool) -> None:
        """The draft after one that was accepted whole is there: made ahead of the verdict, or afresh."""
        if self.hope:
            self.ahead_share = moved_share(self.ahead_share, came_true, self.hope, AHEAD_SMOOTHING)
            self.client.observe_ahead(came_true, self.hope, AHEAD_SMOOTHING)
            self.hope = 0.0


def _cut(draft: Draft, length: int) -> Draft:
    """Cuts a draft to `length`; exact under ratio too, since the length does not depend on the tokens."""
    if len(draft.tokens) <= length:
        return draft
    proposal = cut(draft.proposal, length) if draft.proposal is not None else None
    odds = draft.odds[:length] if draft.odds is not None else None
    return replace(draft, tokens=draft.tokens[:length], proposal=proposal, odds=odds)
