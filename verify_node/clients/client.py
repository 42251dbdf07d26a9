"""A client on the verify node, its estimates over all its sessions (goodput, acceptance, answer times), and its peers.

No other module writes these fields (`tests/house/test_one_writer.py`).
"""

from collections import Counter
from dataclasses import dataclass, field

from goodspeed.drafting.sources import Source, is_awaited
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, smoothed
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.fields import NodeSource
from goodspeed.wire.handshake import Hello
from verify_node.clients.acceptance_bound import AcceptanceBound
from verify_node.clients.calibration import Calibration, ClaimedOf
from verify_node.clients.suspicion import Suspicion

FASTER, SLOWER = 0.5, 0.1
"""Smoothing steps for observations that show a draft node to be faster, and slower, than its average."""

ANSWER_SMOOTHING = 0.2

ANSWER_TOKENS = 5
"""Duration of a draft model's first answer to a verdict, in tokens: prefill of new tokens, and a few drafted ones."""

FIRST_DEPTH = 16.0
"""Initial estimate of the tokens beyond a text that a draft model reaches."""

LEAST_ANSWER_S = 1e-6
"""Least answer time, in seconds, since 0 stands for no answer yet."""

MUCH_QUICKER = 4.0
"""If the usual answer time is more than this multiple of the observed one, the observation replaces the average."""

MOST_LATER = 4.0
"""Cap on a silence, in usual answer times: one pause predicts little about the next answer."""

LATE_ROUNDS = 20
"""Rounds that wait for no draft: twice as many after the first late draft, four times after the second, ..."""

MOST_LATE = 16
"""Cap on counted late drafts: no waiting for 1.3 million rounds at most."""

MEMORY = 200.0
"""Number of rounds after which evidence decays, because texts change."""

KNOWN = 12.0
"""Rounds of each kind after which both means are well known, and are measured only occasionally."""

PREFILL_KEPT = 0.9
"""Factor on the prefill that a client had, for each round since. So a client with a first long prompt comes first for
about seven rounds, and not until it has had as much as one that has prefilled for minutes."""

FIRST_TOKENS, FIRST_ROUNDS = 1.0, 4.0
"""Prior gain of a timely draft, in tokens, and its weight in rounds: without it rounds would never wait."""


@dataclass(slots=True)
class _Mean:
    """A mean over recent rounds."""

    value: float
    num: float

    def observe(self, tokens: int) -> None:
        self.num = min(self.num + 1.0, MEMORY)
        self.value += (tokens - self.value) / self.num


@dataclass(slots=True)
class DraftGain:
    """Tokens gained by waiting for a client's drafts: mean tokens accepted with a timely draft, minus those without.

    Without a timely draft a session uses the rest of an older draft, or the verify node's draft from the session's own
    text. If these are as good as the client's drafts, waiting gains nothing.
    """

    _in_time: _Mean = field(default_factory=lambda: _Mean(FIRST_TOKENS, FIRST_ROUNDS))
    _too_late: _Mean = field(default_factory=lambda: _Mean(0.0, FIRST_ROUNDS))

    @property
    def tokens(self) -> float:
        """Additional tokens accepted if the draft is in time; at least 0.

        The fewer rounds with a timely draft are known, the less the mean of the others counts. Otherwise one lucky
        round would end the waiting, and then no draft would be in time.
        """
        known = min(1.0, (self._in_time.num - FIRST_ROUNDS) / (KNOWN - FIRST_ROUNDS))
        return max(0.0, self._in_time.value - known * self._too_late.value)

    @property
    def is_known(self) -> bool:
        return min(self._in_time.num, self._too_late.num) >= KNOWN

    def observe(self, num_accepted: int, *, in_time: bool) -> None:
        """Updates the means after a round with one of the client's sessions.

        num_accepted: drafted tokens accepted in that round, or in that and the next. in_time: whether the expected
        draft had arrived when the round was packed.
        """
        (self._in_time if in_time else self._too_late).observe(num_accepted)


@dataclass(slots=True)
class Client:
    """One draft node by name: the unit of fairness. Its sessions share its goodput and its weight."""

    name: str
    acceptance: AcceptanceEstimator
    goodput: GoodputEstimator
    acceptance_bound: AcceptanceBound = field(default_factory=AcceptanceBound)  # from its delivered tokens
    calibrations: dict[ClaimedOf, Calibration] = field(default_factory=dict)  # of the claimed probabilities
    suspicion: Suspicion = field(default_factory=Suspicion)  # test whether drafts are drawn from the sent distributions
    weight: float = 1.0
    max_sessions: int | None = None  # most sessions that its key may have open
    observed_round: int = 0  # verify round of its latest observation, or of becoming active
    round_trip_s: float = 0.0  # smoothed, of the session that answered last; initial value of new ones
    draft_fingerprint: str | None = None  # of the draft model that its estimates are of
    has_model: bool = True  # whether one of its connected processes has a draft model
    answer_gain: DraftGain = field(default_factory=DraftGain)  # of waiting for its answers to verdicts
    model_gain: DraftGain = field(default_factory=DraftGain)  # of waiting for its draft model's new drafts
    has_index: bool = False  # it has sent drafts of an n-gram index
    draft_depth: float = FIRST_DEPTH  # tokens beyond a text that its draft model reaches, smoothed
    answer_s: float = 0.0  # from a verdict to its draft model's new draft, smoothed; 0 until the first
    answer_tokens: float = ANSWER_TOKENS  # of whose time that is, smoothed
    num_late: int = 0  # late drafts that rounds waited for, less the drafts completed since
    compiled_at: float = 0.0  # end of its latest turn to have a constraint compiled
    prefill_round: int = 0  # latest round in which its texts were prefilled
    prefilled: float = 0.0  # cost of its prefill by its weight, older rounds counting less
    retry_round: int = 0  # verify round before which rounds wait for none of its drafts
    num_tokens: int = 0  # delivered since this node started, like all counters below
    num_drafted_by: Counter[Source] = field(default_factory=Counter)  # verified drafted tokens, by source
    num_accepted_by: Counter[Source] = field(default_factory=Counter)
    uplink_bytes: int = 0  # of messages from it
    downlink_bytes: int = 0  # of messages to it

    # -- identity --------------------------------------------------------------------------------------------------

    def grant(self, record: Enrolled) -> None:
        self.weight, self.max_sessions = record.weight, record.max_sessions

    def set_draft_model(self, draft_fingerprint: str, unknown: AcceptanceEstimator) -> None:
        """Sets its draft model. If that changed, `unknown`, an estimate without observations, replaces its acceptance.

        The acceptance bound and the calibrations stay, or a client could get rid of them by renaming its model.
        """
        if self.draft_fingerprint not in (None, draft_fingerprint):
            self.acceptance = unknown
        self.draft_fingerprint = draft_fingerprint

    def know_models(self, *, has_model: bool) -> None:
        self.has_model = has_model

    def become_active(self, number: int) -> None:
        """Starts observing its goodput at verify round `number`, since it was idle until then."""
        self.observed_round = number

    def take_turn(self, now: float) -> None:
        """Ends its turn to have a constraint compiled: other clients' sessions that wait come first."""
        self.compiled_at = now

    def prefilled_by(self, number: int) -> float:
        """Returns its recent prefill by its weight, as of verify round `number`: clients with less come first."""
        return self.prefilled * PREFILL_KEPT ** (number - self.prefill_round)

    def note_prefill(self, number: int, cost: float) -> None:
        """Adds the cost of what verify round `number` prefills of its texts, as `prefill.Room` counts it."""
        self.prefilled = self.prefilled_by(number) + cost / self.weight
        self.prefill_round = number

    # -- times and gains of its drafts -----------------------------------------------------------------------------

    def observe_round_trip(self, smoothed_s: float) -> None:
        self.round_trip_s = smoothed_s

    @property
    def draft_s_per_token(self) -> float:
        """Approximate time of its draft model for a token, in seconds; 0 until its first answer."""
        return max(0.0, self.answer_s - self.round_trip_s) / self.answer_tokens

    def miss_draft(self, number: int) -> None:
        """Counts a late draft that verify round `number` waited for: rounds no longer wait for any of its drafts.

        A round that does not wait ends before such a draft arrives, so waiting is retried, each time after more rounds.
        Drafts of other sessions that are late at the same time, from the same pause, do not count.
        """
        if number < self.retry_round:
            return
        self.num_late = min(MOST_LATE, self.num_late + 1)
        self.retry_round = number + (LATE_ROUNDS << self.num_late)

    def complete_draft(self) -> None:
        """Counts a complete draft for the newest verdict: rounds wait again, and one late draft is forgiven."""
        self.num_late, self.retry_round = max(0, self.num_late - 1), 0

    def note_draft(self, source: NodeSource, depth: int) -> None:
        """Records a draft of `depth` successive tokens from this source."""
        if is_awaited(source):
            self._observe_depth(depth)
        else:
            self.has_index = True

    def _observe_depth(self, depth: int) -> None:
        """Updates how far its draft model drafts. Longer drafts weigh more, because a chain is sent in parts."""
        self.draft_depth += (depth - self.draft_depth) * (FASTER if depth > self.draft_depth else SLOWER)

    def observe_answer(self, num_accepted: int, *, in_time: bool) -> None:
        """Updates the gain of its answers after a round. in_time: the newest verdict was answered before packing."""
        self.answer_gain.observe(num_accepted, in_time=in_time)

    def observe_model(self, num_accepted: int, *, in_time: bool) -> None:
        """Updates the gain of its model's drafts after two rounds. in_time: the draft was there for the first."""
        self.model_gain.observe(num_accepted, in_time=in_time)

    def observe_answer_time(self, seconds: float, num_tokens: float = ANSWER_TOKENS) -> None:
        """Updates its answer time: seconds until a new draft, after a verdict that left nothing of the previous draft.

        A much shorter time replaces the average: a process's first draft is slow, and not representative. num_tokens:
        time to draft the answer, in tokens.
        """
        seconds = max(seconds, LEAST_ANSWER_S)
        is_first = not self.answer_s or MUCH_QUICKER * seconds < self.answer_s
        self.answer_s = seconds if is_first else smoothed(self.answer_s, seconds, ANSWER_SMOOTHING)
        self.answer_tokens = num_tokens if is_first else smoothed(self.answer_tokens, num_tokens, ANSWER_SMOOTHING)

    def miss_answer(self, seconds: float) -> None:
        """Updates its estimates after `seconds` without a draft: expects its draft model later, and to reach less."""
        if 0.0 < self.answer_s < seconds:
            self.observe_answer_time(min(seconds, MOST_LATER * self.answer_s), self.answer_tokens)
        self._observe_depth(0)

    def observe_draft(self, agreement: float, num_observed: int, num_accepted: int, num_drafted: int) -> None:
        """Updates its estimates with a verified draft, as `Session.observe_draft` does."""
        self.acceptance.observe(agreement, num_observed)
        self.acceptance_bound.observe(num_accepted, num_drafted)

    def observe_goodput(self, num_tokens: int, number: int) -> None:
        """Applies Eq. (4): verify round `number` delivered num_tokens tokens to all its sessions together."""
        self.goodput.observe(num_tokens, rounds=max(1, number - self.observed_round))
        self.observed_round = number

    def observe_evidence(self, evidence: tuple[float, ...]) -> bool:
        """Updates the suspicion; True if this evidence just proved that drafts are not drawn as claimed."""
        return self.suspicion.observe(evidence)

    def calibration(self, source: ClaimedOf) -> Calibration:
        """Returns the calibration of the probabilities that it claims for tokens of this source."""
        if source not in self.calibrations:
            self.calibrations[source] = Calibration()
        return self.calibrations[source]

    # -- counters --------------------------------------------------------------------------------------------------

    @property
    def num_drafted(self) -> int:
        return self.num_drafted_by.total()

    @property
    def num_accepted(self) -> int:
        return self.num_accepted_by.total()

    def count_tokens(self, num_tokens: int) -> None:
        self.num_tokens += num_tokens

    def count_draft(self, source: Source, num_drafted: int, num_accepted: int) -> None:
        self.num_drafted_by[source] += num_drafted
        self.num_accepted_by[source] += num_accepted

    def count_bytes(self, uplink: int = 0, downlink: int = 0) -> None:
        self.uplink_bytes += uplink
        self.downlink_bytes += downlink


@dataclass(slots=True)
class Peer:
    """One connected draft process."""

    peer_id: bytes
    hello: Hello  # its latest; its client may be named differently if another peer has the same name
    client: Client
    since: float  # connected without a break
    last_seen: float
    principal: str | None = None  # the key that it proved to have; None where there are no keys

    @property
    def sender(self) -> bytes:
        return sender_of(self.peer_id, self.principal)

    def heard(self, now: float) -> None:
        self.last_seen = now


def sender_of(peer_id: bytes, principal: str | None) -> bytes:
    """Returns the id under which a sender's limits are counted: its key, or else its connection's name."""
    return principal.encode() if principal else peer_id
