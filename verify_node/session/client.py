"""What the verify node knows of a client and of a connected peer, and every change of that.

Nobody else writes these fields (`tests/house/test_one_writer.py`). Knows nothing about sessions, rounds or messages.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.smoothing import smoothed
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.fields import DraftSource, OfferSource
from verify_node.session.acceptance_bound import AcceptanceBound
from verify_node.session.calibration import Calibration, ClaimedOf
from verify_node.session.offer_gain import OfferGain
from verify_node.session.suspicion import Suspicion

FASTER, SLOWER = 0.5, 0.1
"""Smoothing steps for what shows a draft node to be quicker, and slower, than on average."""

INITIAL_AHEAD = 0.95
"""Optimistic, so that a far client is asked for drafts at all, and can show what drafting ahead hides."""

OFFER_SMOOTHING = 0.2

FIRST_DELIVERED = 16.0
"""Tokens beyond a text that a draft model is believed to offer at first."""

MOST_LATER = 4.0
"""A silence counts for so many times the usual time at most: one pause tells little of the next offer."""

MAX_LATE = 16
"""Late drafts in a row after which the time until the next one grows no more."""


@dataclass(slots=True)
class Client:
    """One draft node by name: the unit of fairness. Its sessions share its goodput and its weight."""

    name: str
    acceptance: AcceptanceEstimator
    goodput: GoodputEstimator
    acceptance_bound: AcceptanceBound = field(default_factory=AcceptanceBound)  # from its delivered tokens
    calibrations: dict[ClaimedOf, Calibration] = field(default_factory=dict)  # of the odds that are claimed
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
    ahead_share: float = INITIAL_AHEAD  # smoothed over all its sessions; start value of new ones
    round_trip_s: float = 0.0  # smoothed, of the session that answered last; start value of new ones
    draft_fingerprint: str | None = None  # of the draft model that its estimates are of
    capabilities: frozenset[str] = frozenset()  # of the draft node that said Hello last
    answer_gain: OfferGain = field(default_factory=OfferGain)  # of waiting for its answers to verdicts
    model_gain: OfferGain = field(default_factory=OfferGain)  # of waiting for what its draft model offers anew
    has_index: bool = False  # it has offered what an n-gram index expects
    delivered: float = FIRST_DELIVERED  # tokens beyond a text that its draft model offers, smoothed
    offer_s: float = 0.0  # from a verdict to what its draft model offers anew, smoothed; 0 until the first
    num_tokens: int = 0  # delivered since this node started, as all that follows
    num_drafted: int = 0  # and verified
    num_accepted: int = 0
    num_drafted_by: Counter[DraftSource] = field(default_factory=Counter)  # num_drafted, by what drafted them
    num_accepted_by: Counter[DraftSource] = field(default_factory=Counter)
    uplink_bytes: int = 0  # of its messages
    downlink_bytes: int = 0  # of those to it

    # -- who it is -------------------------------------------------------------------------------------------------

    def grant(self, record: Enrolled) -> None:
        """Sets what its key's enrolment says: weight and limits."""
        self.weight, self.max_sessions = record.weight, record.max_sessions
        self.max_round_tokens = record.max_round_tokens

    def understand(self, capabilities: Iterable[str]) -> None:
        """Sets what its draft node understands beyond this version of the protocol."""
        self.capabilities = frozenset(capabilities)

    def set_draft_model(self, draft_fingerprint: str, unknown: AcceptanceEstimator) -> None:
        """Sets its draft model. If that changed, resets the acceptance rate to `unknown`, and the drafting time.

        The acceptance bound stays: a client could lift that by renaming its model.
        """
        if self.draft_fingerprint not in (None, draft_fingerprint):
            self.acceptance, self.draft_s_per_token = unknown, 0.0
        self.draft_fingerprint = draft_fingerprint

    def become_active(self, number: int) -> None:
        """It was idle until verify round `number`: its goodput is observed from there on."""
        self.observed_round = number

    # -- what its drafts take, and bring ---------------------------------------------------------------------------

    def observe_drafting(self, seconds: float, num_drafted: int) -> None:
        """Smooths the time per token of a draft that took so many seconds; an empty draft is ignored.

        Catching up with the verdict takes about as long as one more token. A faster draft moves the average quickly and
        a slower one slowly: the first draft after a pause is slow, and tells nothing of the next.
        """
        if num_drafted:
            token_s = seconds / (num_drafted + 1)
            step = FASTER if token_s < self.draft_s_per_token else SLOWER
            self.draft_s_per_token = smoothed(self.draft_s_per_token, token_s, step)

    def observe_round_trip(self, smoothed_s: float) -> None:
        """Takes over the smoothed round trip of the session that answered last."""
        self.round_trip_s = smoothed_s

    def observe_ahead(self, came_true: bool, hope: float, step: float) -> None:
        """Smooths the share of drafts made ahead; `hope` is how likely this one could have been."""
        self.ahead_share = moved_share(self.ahead_share, came_true, hope, step)

    def note_offer(self, source: OfferSource, depth: int) -> None:
        """It offered so many tokens, one after another, that the source drafted."""
        if source == "ngram":
            self.has_index = True
        else:
            self._observe_delivered(depth)

    def _observe_delivered(self, depth: int) -> None:
        """Its draft model got so far beyond a text. Longer offers count quickly, since a chain goes up in parts."""
        self.delivered += (depth - self.delivered) * (FASTER if depth > self.delivered else SLOWER)

    def observe_answer(self, num_accepted: int, *, in_time: bool) -> None:
        """A round moved a session of it. in_time: the newest verdict was answered when it was packed."""
        self.answer_gain.observe(num_accepted, in_time=in_time)

    def observe_offer_time(self, seconds: float) -> None:
        """Its draft model offered something anew so long after a verdict that left nothing of its last offer."""
        self.offer_s = smoothed(self.offer_s, seconds, OFFER_SMOOTHING)

    def miss_offer(self, seconds: float) -> None:
        """Nothing was offered for so long: its draft model is expected later from now on, and to offer less."""
        if 0.0 < self.offer_s < seconds:
            self.observe_offer_time(min(seconds, MOST_LATER * self.offer_s))
        self._observe_delivered(0)

    def observe_goodput(self, num_tokens: int, number: int) -> None:
        """Eq. (4): verify round `number` delivered so many tokens to all its sessions together."""
        self.goodput.observe(num_tokens, rounds=max(1, number - self.observed_round))
        self.observed_round = number

    def observe_evidence(self, evidence: tuple[float, ...]) -> bool:
        """Learns from drafted tokens; returns whether they just proved that drafts are not drawn from what is sent."""
        return self.suspicion.observe(evidence)

    def calibration(self, source: ClaimedOf) -> Calibration:
        """How often its tokens of this source are accepted, by the odds that are claimed for them."""
        if source not in self.calibrations:
            self.calibrations[source] = Calibration()
        return self.calibrations[source]

    # -- late drafts and probes ------------------------------------------------------------------------------------

    def miss_draft(self, number: int, waiting_rounds: int) -> None:
        """A draft did not come until verify round `number`: doubles the rounds until the next one is asked for.

        waiting_rounds: the rounds to which the doubling applies. Drafts missed at the same time count once.
        """
        if number >= self.retry_round:
            self.num_late = min(self.num_late + 1, MAX_LATE)
            self.retry_round = number + (waiting_rounds << self.num_late)

    def draft_arrived(self) -> None:
        """A draft arrived in time: one miss is forgotten, so the next miss waits half as long."""
        self.num_late = max(0, self.num_late - 1)

    def begin_probe(self, number: int, max_worth: float | None) -> None:
        """A probe is due in verify round `number`: the wait for the next begins; see `Session.begin_probe`."""
        limit_worth(self.acceptance, max_worth)
        self.zero_since = number

    def note_length(self) -> None:
        """Notes that the policy gave a length to one of its sessions."""
        self.zero_since, self.num_probes = None, 0

    def note_probe(self, in_a_row: bool) -> None:
        """A session got a probe. in_a_row: its last probe did well."""
        self.zero_since, self.num_probes = None, self.num_probes + 1 if in_a_row else 1

    def note_zero(self, number: int) -> int:
        """Notes that a session was given nothing in verify round `number`; returns the round since which that is so."""
        if self.zero_since is None:
            self.zero_since = number
        return self.zero_since

    # -- counters --------------------------------------------------------------------------------------------------

    def count_tokens(self, num_tokens: int) -> None:
        """Adds delivered tokens."""
        self.num_tokens += num_tokens

    def count_draft(self, num_drafted: int, num_accepted: int) -> None:
        """Adds a verified draft."""
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted

    def count_source(self, source: DraftSource, num_drafted: int, num_accepted: int) -> None:
        """Adds the part of a verified draft that one source drafted."""
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


def moved_share(share: float, came_true: bool, hope: float, step: float) -> float:
    """The smoothed share after one more draft; `hope`: how likely it could have been made ahead."""
    return min(share + step * (came_true - hope * share), 1.0)


def limit_worth(acceptance: AcceptanceEstimator, max_worth: float | None) -> None:
    """Lets an estimate rest on so many drafted tokens at most; None leaves it as it is."""
    if max_worth is not None and acceptance.worth is not None:
        acceptance.worth = min(acceptance.worth, max_worth)
