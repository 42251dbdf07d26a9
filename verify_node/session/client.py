"""A client and a connected peer as the verify node knows them, and every change of that.

Nobody else writes these fields (`tests/house/test_one_writer.py`).
"""

from collections import Counter
from dataclasses import dataclass, field

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, smoothed
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.fields import DraftSource, NodeSource
from verify_node.session.acceptance_bound import AcceptanceBound
from verify_node.session.calibration import Calibration, ClaimedOf
from verify_node.session.suspicion import Suspicion

FASTER, SLOWER = 0.5, 0.1
"""Smoothing steps for what shows a draft node to be quicker, and slower, than on average."""

ANSWER_SMOOTHING = 0.2

ANSWER_TOKENS = 5
"""Time of a draft model's first answer to a verdict, in tokens: it prefills what is new, and drafts a few."""

FIRST_DELIVERED = 16.0
"""Tokens beyond a text that a draft model is believed to get to at first."""

LEAST_ANSWER_S = 1e-6
"""An answer that took no time counts for so much: 0 stands for none so far."""

MUCH_QUICKER = 4.0
"""An answer that takes less than the usual time over this replaces it."""

MOST_LATER = 4.0
"""A silence counts for so many times the usual time at most: one pause tells little of the next answer."""

LATE_ROUNDS = 20
"""After the first late draft none is waited for in twice as many rounds, after the second in four times as many, ..."""

MOST_LATE = 16
"""Late drafts that count at most: two million rounds."""

MEMORY = 200.0
"""Rounds that count; older ones are forgotten, since texts change."""

KNOWN = 24.0
"""After so many rounds of either kind both means are known well enough to be looked after only now and then."""

FIRST_TOKENS, FIRST_ROUNDS = 1.0, 4.0
"""Gain of a draft in time that is assumed at first, as if seen in so many rounds: so it is waited for at all."""


@dataclass(slots=True)
class _Mean:
    """A mean over the last rounds."""

    value: float
    num: float

    def observe(self, tokens: int) -> None:
        self.num = min(self.num + 1.0, MEMORY)
        self.value += (tokens - self.value) / self.num


@dataclass(slots=True)
class DraftGain:
    """Tokens that waiting for a client's drafts brings: the mean accepted with the draft in time, less that without.

    Without it a session goes on with what is left of an older draft, or with what the verify node drafts from its own
    text. Where that is as good, as with an index that knows nothing else, waiting brings nothing.
    """

    _in_time: _Mean = field(default_factory=lambda: _Mean(FIRST_TOKENS, FIRST_ROUNDS))
    _too_late: _Mean = field(default_factory=lambda: _Mean(0.0, FIRST_ROUNDS))

    @property
    def tokens(self) -> float:
        """Tokens more that are accepted if the draft is there in time; at least 0."""
        return max(0.0, self._in_time.value - self._too_late.value)

    @property
    def is_known(self) -> bool:
        """True if rounds of both kinds have told enough."""
        return min(self._in_time.num, self._too_late.num) >= KNOWN

    def observe(self, num_accepted: int, *, in_time: bool) -> None:
        """A round moved one of the client's sessions. in_time: what was hoped for was there when it was packed.

        num_accepted: drafted tokens, of that round, or of that and the next.
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
    suspicion: Suspicion = field(default_factory=Suspicion)  # that its drafts are not drawn from what it sends
    weight: float = 1.0
    max_sessions: int | None = None  # that its key may have open
    max_round_tokens: int | None = None  # that its key may have drafted in one round
    observed_round: int = 0  # verify round of its last observation, or in which it became active
    round_trip_s: float = 0.0  # smoothed, of the session that answered last; start value of new ones
    draft_fingerprint: str | None = None  # of the draft model that its estimates are of
    has_model: bool = True  # the draft node that said Hello last has a draft model
    answer_gain: DraftGain = field(default_factory=DraftGain)  # of waiting for its answers to verdicts
    model_gain: DraftGain = field(default_factory=DraftGain)  # of waiting for what its draft model drafts anew
    has_index: bool = False  # it has sent what an n-gram index expects
    delivered: float = FIRST_DELIVERED  # tokens beyond a text that its draft model gets to, smoothed
    answer_s: float = 0.0  # from a verdict to what its draft model drafts anew, smoothed; 0 until the first
    num_late: int = 0  # drafts that were waited for and did not come in time, less those that were complete since
    retry_round: int = 0  # verify round before which none of its drafts is waited for
    num_tokens: int = 0  # delivered since this node started, as all that follows
    num_drafted_by: Counter[DraftSource] = field(default_factory=Counter)  # and verified, by what drafted them
    num_accepted_by: Counter[DraftSource] = field(default_factory=Counter)
    uplink_bytes: int = 0  # of its messages
    downlink_bytes: int = 0  # of those to it

    # -- who it is -------------------------------------------------------------------------------------------------

    def grant(self, record: Enrolled) -> None:
        """Sets what its key's enrolment says: weight and limits."""
        self.weight, self.max_sessions = record.weight, record.max_sessions
        self.max_round_tokens = record.max_round_tokens

    def set_draft_model(self, draft_fingerprint: str, unknown: AcceptanceEstimator, *, has_model: bool) -> None:
        """Sets its draft model. If that changed, resets the acceptance rate to `unknown`.

        The acceptance bound stays: a client could lift that by renaming its model.
        """
        if self.draft_fingerprint not in (None, draft_fingerprint):
            self.acceptance = unknown
        self.draft_fingerprint, self.has_model = draft_fingerprint, has_model

    def become_active(self, number: int) -> None:
        """Observes its goodput from verify round `number` on, since it was idle until then."""
        self.observed_round = number

    # -- what its drafts take, and bring ---------------------------------------------------------------------------

    def observe_round_trip(self, smoothed_s: float) -> None:
        """Takes over the smoothed round trip of the session that answered last."""
        self.round_trip_s = smoothed_s

    @property
    def draft_s_per_token(self) -> float:
        """About how long its draft model takes for a token; 0 until its first answer."""
        return max(0.0, self.answer_s - self.round_trip_s) / ANSWER_TOKENS

    def miss_draft(self, number: int) -> None:
        """A draft that verify round `number` waited for is late: none of its drafts is waited for, in whatever session.

        Rounds that do not wait for a draft are over before it is there, so one is waited for again after ever more
        rounds.
        """
        self.num_late = min(MOST_LATE, self.num_late + 1)
        self.retry_round = number + (LATE_ROUNDS << self.num_late)

    def complete_draft(self) -> None:
        """A draft is complete after the newest verdict: drafts are waited for again, and one late one is forgiven."""
        self.num_late, self.retry_round = max(0, self.num_late - 1), 0

    def note_draft(self, source: NodeSource, depth: int) -> None:
        """Notes that it drafted `depth` tokens, one after another, by this source."""
        if source == "ngram":
            self.has_index = True
        else:
            self._observe_delivered(depth)

    def _observe_delivered(self, depth: int) -> None:
        """Its draft model got so far beyond a text. Longer drafts count quickly, since a chain goes up in parts."""
        self.delivered += (depth - self.delivered) * (FASTER if depth > self.delivered else SLOWER)

    def observe_answer(self, num_accepted: int, *, in_time: bool) -> None:
        """A round moved a session of it. in_time: the newest verdict was answered when it was packed."""
        self.answer_gain.observe(num_accepted, in_time=in_time)

    def observe_answer_time(self, seconds: float) -> None:
        """Its draft model drafted something anew so long after a verdict that left nothing of its last draft.

        What is quicker by far is believed at once: the first draft of a process is slow, and tells nothing of others.
        """
        seconds = max(seconds, LEAST_ANSWER_S)
        is_other = MUCH_QUICKER * seconds < self.answer_s
        self.answer_s = seconds if is_other else smoothed(self.answer_s, seconds, ANSWER_SMOOTHING)

    def miss_answer(self, seconds: float) -> None:
        """Nothing was drafted for so long: its draft model is expected later from now on, and to get less far."""
        if 0.0 < self.answer_s < seconds:
            self.observe_answer_time(min(seconds, MOST_LATER * self.answer_s))
        self._observe_delivered(0)

    def observe_goodput(self, num_tokens: int, number: int) -> None:
        """Eq. (4): verify round `number` delivered so many tokens to all its sessions together."""
        self.goodput.observe(num_tokens, rounds=max(1, number - self.observed_round))
        self.observed_round = number

    def observe_evidence(self, evidence: tuple[float, ...]) -> bool:
        """Learns from drafted tokens; returns whether they just proved that drafts are not drawn from what is sent."""
        return self.suspicion.observe(evidence)

    def calibration(self, source: ClaimedOf) -> Calibration:
        """The calibration of the probabilities that it claims for tokens of this source."""
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
        """Adds delivered tokens."""
        self.num_tokens += num_tokens

    def count_draft(self, source: DraftSource, num_drafted: int, num_accepted: int) -> None:
        """Adds a verified draft."""
        self.num_drafted_by[source] += num_drafted
        self.num_accepted_by[source] += num_accepted

    def count_bytes(self, uplink: int = 0, downlink: int = 0) -> None:
        """Adds bytes on the wire."""
        self.uplink_bytes += uplink
        self.downlink_bytes += downlink


@dataclass(slots=True)
class Peer:
    """One connected draft process."""

    peer_id: bytes
    boot_id: bytes
    client: Client
    name: str  # as it calls itself; the client of another with this name has another
    draft_model: str
    draft_fingerprint: str
    since: float  # connected without a break
    last_seen: float
    principal: str | None = None  # the key it proved to have; None where there are no keys

    def heard(self, now: float) -> None:
        """A message of it came: its lease begins anew."""
        self.last_seen = now
