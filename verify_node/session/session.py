"""What the verify node knows of a client, of a connected peer, and of a session.

Plain data with derived properties. Knows nothing about messages' transport, tensors, or when rounds happen.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from goodspeed.exact.positions import cut
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, FinishReason, OpenSession, TextDigest, TokenLogprobs, Verdict, Verification
from verify_node.session.acceptance_bound import Shown
from verify_node.session.suspicion import Suspicion

WINDOW = 16
"""Unacknowledged tokens after which a session that advances by itself waits for its draft node."""

MAX_WINDOW = 256
"""The most that far round trips can widen the window to."""

SMOOTHING = 0.2
"""Of round trips, and of the durations of rounds."""

QUICKER, SLOWER = 0.5, 0.1
"""How soon a draft's time per token is believed when it is shorter, or longer, than what is known."""

INITIAL_AHEAD = 0.95
"""Optimistic, so that a far client is asked for drafts at all, and can show what drafting ahead hides."""

AHEAD_SMOOTHING = 0.1


class Probe(Enum):
    """A draft that is asked for to learn, where the policy would have none."""

    NONE = "none"
    ASKED = "asked"
    ACCEPTED = "accepted"  # well: it is worth to ask for one more at once


@dataclass(slots=True)
class Client:
    """One draft node by name: the unit of fairness. Its sessions share its goodput and its weight."""

    name: str
    acceptance: AcceptanceEstimator
    goodput: GoodputEstimator
    shown: Shown = field(default_factory=Shown)  # what its drafts have brought
    suspicion: Suspicion = field(default_factory=Suspicion)  # that its drafts are not drawn from what it sends
    weight: float = 1.0
    max_sessions: int | None = None  # that its key may have open
    max_round_tokens: int | None = None  # that its key may have drafted in one round
    observed_round: int = 0  # verify round of its last observation, or in which it became active
    draft_s_per_token: float = 0.0  # as its drafts say, smoothed; 0 until the first
    zero_since: int | None = None  # verify round since which none of its sessions was given a length
    num_late: int = 0  # drafts that never came, less those that did since
    retry_round: int = 0  # verify round before which no session that went without is asked for a draft
    num_probes: int = 0  # in a row, the last time; 0 since it drafts as the policy says
    ahead_share: float = INITIAL_AHEAD  # as its sessions have it; new ones begin with it
    round_trip_s: float = 0.0  # as its last session to answer has it; new ones begin with it
    draft_fingerprint: str | None = None  # of the draft model that its estimates are of
    num_tokens: int = 0  # delivered since this node started, as all that follows
    num_drafted: int = 0  # and verified
    num_accepted: int = 0
    uplink_bytes: int = 0  # of its messages
    downlink_bytes: int = 0  # of those to it

    def observe_drafting(self, seconds: float, num_drafted: int) -> None:
        """How long one of its drafts was in the making; an empty one says nothing.

        Catching up with the verdict takes about as long as one more token. That it can be quick is soon believed, that
        it is slow only by and by: after a time without drafts the first is slow, and tells nothing of the next.
        """
        if num_drafted:
            token_s = seconds / (num_drafted + 1)
            known = self.draft_s_per_token
            step = 1.0 if not known else QUICKER if token_s < known else SLOWER
            self.draft_s_per_token += (token_s - known) * step


@dataclass(slots=True)
class Peer:
    """One connected draft process."""

    peer_id: bytes
    boot_id: bytes
    client: Client
    draft_model: str
    draft_fingerprint: str
    since: float  # connected without a break
    last_seen: float
    principal: str | None = None  # the key it proved to have; None where there are no keys


@dataclass(slots=True, eq=False)
class Session:
    """One generation: its text so far, what its draft node has of it, and what it may do next."""

    opened: OpenSession
    peer_id: bytes
    client: Client
    acceptance: AcceptanceEstimator
    tokens: list[int]  # prompt and everything committed
    admitted: int  # order of opening: the oldest is the last to be preempted
    acked: int  # the draft node has applied everything below this position
    limit: int  # position at which the session ends for its length
    shown: Shown = field(default_factory=Shown)  # what its drafts have brought
    num_cached: int = 0  # leading tokens with keys and values in the pool
    assigned: int | None = None  # next draft length; None until the first verdict
    draft: Draft | None = None  # arrived, waiting for a round
    ahead: Draft | None = None  # arrived ahead of the verdict that it hopes for
    last_round: int = -1  # of the last draft answered or dropped
    last_verdict: Verdict | None = None
    finish_reason: FinishReason | None = None
    ready_since: float = 0.0
    heard_at: float = 0.0  # last time that its draft node mentioned it
    moved_at: float = 0.0  # last time that it was opened, got tokens, or acknowledged some
    num_repeats: int = 0  # verdicts sent again since it last acknowledged more
    zero_since: int | None = None  # verify round from which its wait for a probe counts; None while it has a length
    probe: Probe = Probe.NONE  # what its last draft was
    cannot_draft: bool = False  # its last draft was empty: nothing is assigned until the next probe
    share: float = 1.0  # smoothed share of rounds that it takes part in while drafting
    round_trip_s: float = 0.0  # verdict out to draft or Ack in, smoothed
    ahead_share: float = 0.0  # of the drafts that might have been made ahead: how many were, smoothed
    hope: float = 0.0  # that the draft after its last verdict was made ahead of that; 0 as well once it is there
    due_at: float = 0.0  # when its next draft should be there
    late_at: float = 0.0  # when it is waited for no more
    sent: deque[tuple[int, float]] = field(default_factory=deque)  # (text length, time) of unacknowledged verdicts
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the unacknowledged tokens, where they are wanted
    _digest: TextDigest = field(default_factory=TextDigest)

    @property
    def session_id(self) -> bytes:
        return self.opened.session_id

    @property
    def epoch(self) -> int:
        return self.opened.epoch

    @property
    def verification(self) -> Verification:
        """The rule that its next round goes by: match, where nothing is claimed, once its client was found to lie.

        That is exact: it hangs on drafts that are verified, never on the next one, and the noise of match is another's.
        """
        return "match" if self.client.suspicion.proven else self.opened.verification

    @property
    def num_backlog(self) -> int:
        """Committed tokens that the target has not been fed; at least 1, since the newest has not."""
        return len(self.tokens) - self.num_cached

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def awaits_draft(self) -> bool:
        return not self.finished and bool(self.assigned) and self.draft is None

    @property
    def is_drafting(self) -> bool:
        return not self.finished and bool(self.assigned)

    @property
    def is_held_up(self) -> bool:
        """Whether only its draft node can move it: by a draft, an Ack or a Close."""
        return self.finished or self.awaits_draft or len(self.tokens) - self.acked >= WINDOW

    @property
    def may_stop_at(self) -> int:
        """Position from which on one of its stop ids may be drawn."""
        return len(self.opened.prompt) + self.opened.min_tokens

    def logprobs_from(self, base_len: int) -> tuple[TokenLogprobs, ...] | None:
        """Those of the tokens from base_len on, which is not acknowledged; None where they are not wanted."""
        if self.opened.num_logprobs is None:
            return None
        return tuple(self.logprobs[len(self.logprobs) - (len(self.tokens) - base_len) :])

    def window(self, round_s: float) -> int:
        """Tokens that may be on their way: 16, or two round trips' worth of rounds, at most 256."""
        rounds = 2 * self.round_trip_s / round_s if round_s else 0
        return min(MAX_WINDOW, max(WINDOW, int(rounds)))

    @property
    def answer_s(self) -> float:
        """How long its draft node should take to answer a verdict; a draft made ahead is on its way already."""
        drafting = 0.0 if self.hope * self.ahead_share > 0.5 else (self.assigned or 0) + 1
        return self.round_trip_s + self.client.draft_s_per_token * drafting

    def is_ready(self, window: int = WINDOW) -> bool:
        """Whether a round can move it forward now."""
        if self.finished or self.awaits_draft:
            return False
        return self.draft is not None or len(self.tokens) - self.acked < window

    @property
    def max_length(self) -> int:
        """Longest draft of which every token, and one more, can still be delivered."""
        return max(0, min(self.opened.max_draft, self.limit - len(self.tokens) - 1))

    def observe_ahead(self, came_true: bool) -> None:
        """The draft after one that was accepted whole is there: made ahead of the verdict, or afresh."""
        if self.hope:
            for known in (self, self.client):
                known.ahead_share += AHEAD_SMOOTHING * (came_true - self.hope * known.ahead_share)
                known.ahead_share = min(known.ahead_share, 1.0)
            self.hope = 0.0

    def hope_for(self, ahead: Draft) -> None:
        """A draft made ahead: taken at once where its verdict is made already, kept where it may come true yet.

        The newest is kept, and none that cannot come true any more.
        """
        if ahead.round <= self.last_round or not ahead.tokens:
            return
        if self.awaits_draft and self._is_made_on_text(ahead):
            self._take(ahead)
            return
        newest = max(known.round if known else -1 for known in (self.draft, self.ahead))
        if (
            self.is_drafting
            and ahead.round > newest
            and 0 < ahead.base_len - len(self.tokens) <= (self.assigned or 0) + 1
        ):
            self.ahead = ahead

    def settle_ahead(self) -> int | None:
        """The draft made ahead becomes the next draft, if what it hoped for came true; else gives its round."""
        ahead, self.ahead = self.ahead, None
        if ahead is None:
            return None
        if not self._is_made_on_text(ahead):
            return ahead.round
        if not self.awaits_draft:
            return ahead.round
        self._take(ahead)
        return None

    def _is_made_on_text(self, draft: Draft) -> bool:
        return draft.base_len == len(self.tokens) and draft.base_digest == self.base_digest()

    def _take(self, ahead: Draft) -> None:
        """Cut to what is assigned, since it was made before that was known."""
        self.observe_ahead(True)
        self.draft = _cut(ahead, self.assigned or 0)
        self.cannot_draft = False

    def base_digest(self) -> bytes:
        """Hash of prompt and committed tokens."""
        return self._digest.of(self.tokens)

    def acknowledge(self, base_len: int, at: float) -> None:
        """Everything below base_len is applied; the newest verdict that ends there tells the round trip."""
        if base_len > self.acked:
            self.num_repeats, self.moved_at = 0, max(self.moved_at, at)
        self.acked = base_len
        del self.logprobs[: max(0, len(self.logprobs) - (len(self.tokens) - base_len))]
        sent_at = None
        while self.sent and self.sent[0][0] <= base_len:
            sent_at = self.sent.popleft()[1]
        if sent_at is not None:
            seconds = max(0.0, at - sent_at)
            self.round_trip_s += (seconds - self.round_trip_s) * (SMOOTHING if self.round_trip_s else 1.0)
            self.client.round_trip_s = self.round_trip_s

    def extend(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] = ()) -> tuple[int, ...]:
        """Commits what of these tokens the session still takes, ends it where it ends, and returns what was taken."""
        taken: list[int] = []
        for token in tokens:
            if token in self.opened.stop_ids:
                self.finish_reason = "stop"
                break
            taken.append(token)
            if len(self.tokens) + len(taken) >= self.limit:
                self.finish_reason = "length"
                break
        self.tokens += taken
        self.logprobs += logprobs[: len(taken)]
        return tuple(taken)


def _cut(draft: Draft, length: int) -> Draft:
    """Under the ratio rule, too: how much is cut does not depend on what was drawn."""
    if len(draft.tokens) <= length:
        return draft
    proposal = cut(draft.proposal, length) if draft.proposal is not None else None
    return replace(draft, tokens=draft.tokens[:length], proposal=proposal)
