"""What each round teaches, and who may draft how much next: Eq. (3), Eq. (4) and Eq. (5) of the GoodSpeed paper.

Observes acceptance per session and goodput per client, and asks the policy for lengths. In continuous rounds not
everybody takes part in every round, so the budget that is handed out is steered until what arrives per round comes to
C. Knows nothing about messages.
"""

import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from goodspeed.errors import PolicyError
from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.policies import ClientState, Policy
from goodspeed.fair.policies.gradient import goodput_bounds
from goodspeed.wire.fields import MAX_OFFER
from verify_node.rounds import caps, probes
from verify_node.session.client import Client
from verify_node.session.session import Session

logger = logging.getLogger("goodspeed.verify")

INITIAL_ACCEPTANCE = 0.7
"""Optimistic, so that a new session is tried with a few tokens rather than none."""

INITIAL_WORTH = 3.0
"""Drafted tokens that it counts as, where evidence is weighed. With 1 chance decides too much, with 10 it is believed
for too long; measured, see the log."""

INITIAL_GOODPUT = 1.0
"""What plain decoding gives."""

SMALLEST_GOODPUT = 1e-9

SMALLEST_WORTH = 1e-250

FIRST_LENGTH = 4
"""Longest first draft of a client if the policy knows time: nobody knows how long it takes, and others may wait."""

LEAST_PERMISSION = 4
"""Tokens that every draft model that may offer may draft: fewer are gone when they arrive, since the text goes on
meanwhile, and nobody could show by now that its drafts are worth more."""

MOST_ASSIGNED = 1.75
"""Lengths that are assigned come to so many budgets at most: drafts do not all arrive at once, and what is too much is
cut. Below 1.5 rounds are not filled, above 2 drafting is wasted."""

REACH = 2
"""A permission is at most so many times what the draft node has delivered, beyond the least: room to show more."""

PROBE_ROUNDS = probes.WAITING_ROUNDS


class Observation(Struct, frozen=True):
    """What one round showed of one session."""

    session: Session
    agreement: float  # sum of Eq. (3)'s indicators over the drafted positions
    num_drafted: int
    num_tokens: int  # delivered
    num_accepted: int | None = None  # before the text's end, and that; None: all that was delivered but the last

    @property
    def delivered(self) -> tuple[int, int]:
        """Drafted tokens accepted, and drafted, up to the text's end, which is itself not delivered."""
        if self.num_accepted is None:
            return max(0, self.num_tokens - 1), self.num_drafted
        return self.num_accepted, min(self.num_drafted, self.num_tokens + 1)


class Mode(Enum):
    """What a round costs those who are in it: whether they wait for each other, and whether the policy knows time.

    In continuous rounds the budget is steered, because not everybody takes part. A policy that knows time may give
    length 0 for long. There probes are long in continuous rounds and rare in barrier rounds.
    """

    BARRIER = "barrier"
    BARRIER_TIMED = "barrier, timed"
    CONTINUOUS = "continuous"
    CONTINUOUS_TIMED = "continuous, timed"

    @classmethod
    def of(cls, rounds: str, *, weighs_time: bool) -> "Mode":
        """The mode for a planner's name, and whether the policy is given the time that rounds take."""
        if rounds == "continuous":
            return cls.CONTINUOUS_TIMED if weighs_time else cls.CONTINUOUS
        return cls.BARRIER_TIMED if weighs_time else cls.BARRIER

    @property
    def is_continuous(self) -> bool:
        return self in (Mode.CONTINUOUS, Mode.CONTINUOUS_TIMED)

    @property
    def is_timed(self) -> bool:
        return self in (Mode.BARRIER_TIMED, Mode.CONTINUOUS_TIMED)


class Scheduler:
    """Keeps the estimates and turns them into next draft lengths."""

    def __init__(
        self,
        policy: Policy,
        budget: int,
        *,
        eta: float,
        beta: float,
        mode: Mode,
        weigh_evidence: bool = True,
        fairness: float = 1.0,
        permitted: float = 1.0,
        permissions: Policy | None = None,
    ) -> None:
        """fairness: of the utility U whose derivative a token is worth. permitted: lengths handed out, in budgets.

        permissions: shares out what draft models may draft beyond their texts while rounds go on; then who has an
        n-gram index only makes offers, and is assigned no length. None where no offers are taken.
        """
        self.policy = policy
        self.permissions = permissions
        self.budget = budget
        self.eta = eta
        self.beta = beta
        self.mode = mode
        self.fairness = fairness
        self._goodput_bounds = goodput_bounds(fairness)
        self.permitted = permitted
        self.first_length = FIRST_LENGTH if mode.is_timed else budget
        self.worth = INITIAL_WORTH if weigh_evidence else None
        self.clients: dict[str, Client] = {}
        self.policy_error: PolicyError | None = None  # the last one
        self.num_policy_errors = 0

    def client(self, name: str) -> Client:
        """The client of that name; its estimates outlive its connections."""
        if name not in self.clients:
            self.clients[name] = Client(name, self._unknown_acceptance(), GoodputEstimator(self.beta, INITIAL_GOODPUT))
        return self.clients[name]

    def set_draft_model(self, client: Client, draft_fingerprint: str) -> None:
        """Sets the client's draft model; what was estimated of another one is forgotten."""
        client.set_draft_model(draft_fingerprint, self._unknown_acceptance())

    def _unknown_acceptance(self) -> AcceptanceEstimator:
        return AcceptanceEstimator(self.eta, INITIAL_ACCEPTANCE, self.worth)

    def worth_of(self, client: Client) -> float:
        """What one token of this client is worth to the sum of utilities: w U'(X) = w X^-fairness.

        Finite, and above 0.
        """
        least, most = self._goodput_bounds
        goodput = min(max(client.goodput.value, SMALLEST_GOODPUT, least), most)
        return float(max(client.weight * goodput**-self.fairness, SMALLEST_WORTH))

    def session_acceptance(self, client: Client) -> AcceptanceEstimator:
        """A new session starts from what its client's sessions have shown."""
        return AcceptanceEstimator(self.eta, client.acceptance.value, client.acceptance.worth)

    def observe(self, number: int, observations: Sequence[Observation]) -> None:
        """Eq. (3) for every session, Eq. (4) once for every client, with the rounds since its last observation."""
        tokens: dict[str, int] = defaultdict(int)
        for seen in observations:
            tokens[seen.session.client.name] += seen.num_tokens
            if seen.num_drafted:
                seen.session.judge_probe(probes.did_well(seen.agreement, seen.num_drafted))
                seen.session.observe_draft(seen.agreement, seen.num_drafted, *seen.delivered)
        for name, num_tokens in tokens.items():
            self.clients[name].observe_goodput(num_tokens, number)

    def observe_shares(self, drafting: Iterable[Session], present: Container[bytes]) -> None:
        """Smooths in how many rounds each drafting session takes part.

        present: sessions whose draft had arrived, also those that did not fit the budget. Without those, a round that
        was handed too much would lower the shares, and the next would be handed even more.
        """
        for session in drafting:
            session.observe_share(session.session_id in present)

    def allocate(
        self, number: int, sessions: Sequence[Session], participants: Sequence[Session], round_s: float
    ) -> dict[bytes, int]:
        """Next draft lengths of the participants, from Eq. (5) over all active sessions; probes come out of the budget.

        sessions: every active session that has had its first token; participants: those among them to be told.
        """
        if not any(self._may_draft(session) for session in sessions):
            return self.allocate_none(number, participants)  # which spares the policy's search
        budget = self.handed_out(sessions)
        rooms = caps.room(sessions, participants)
        probed = self._probes(number, sessions, participants, round_s, budget, rooms)
        states = [self._state(session, rooms, round_s) for session in sessions]
        allocated = dict(
            zip(
                (session.session_id for session in sessions),
                self._share_out(self.policy, states, budget - sum(probed.values())) or [0] * len(states),
                strict=True,
            )
        )
        lengths = {session.session_id: allocated[session.session_id] for session in participants}
        for session in participants:
            length, probe = lengths[session.session_id], probed.get(session.session_id, 0)
            lengths[session.session_id] = session.assign(length, probe, number)
        return lengths

    def allocate_none(self, number: int, participants: Sequence[Session]) -> dict[bytes, int]:
        """Nobody drafts: the participants go on by themselves."""
        return {session.session_id: session.assign(0, 0, number) for session in participants}

    def _share_out(self, policy: Policy, states: Sequence[ClientState], budget: int) -> list[int] | None:
        """The policy's answer; None where a policy of a user's own failed: that costs drafts, and never the node."""
        try:
            return policy.allocate(states, budget)
        except PolicyError as error:
            self.policy_error = error
            self.num_policy_errors += 1
            if self.num_policy_errors.bit_count() == 1:  # the first, the second, the fourth and so on
                logger.error("%s", self.told_policy_error, exc_info=error.__cause__)
            return None

    @property
    def told_policy_error(self) -> str | None:
        """What was wrong with the policy's last wrong answer, and how often there was one; None if there never was."""
        if self.policy_error is None:
            return None
        return f"{self.policy_error}; nobody drafts after such a round (so far: {self.num_policy_errors})"

    def _probes(
        self,
        number: int,
        sessions: Sequence[Session],
        participants: Sequence[Session],
        round_s: float,
        budget: int,
        rooms: Mapping[bytes, int],
    ) -> dict[bytes, int]:
        """Lengths of the probes that are due; with time where the policy would draft if nearly all were accepted."""
        participants = [
            session for session in participants if rooms.get(session.session_id) != 0 and self._may_draft(session)
        ]
        if self.mode is not Mode.CONTINUOUS_TIMED:
            num_waiting = len(sessions) if self.mode is Mode.BARRIER_TIMED else 0
            late = [session for session in participants if probes.is_due_short(session, number, round_s, num_waiting)]
            for session in late[:budget]:
                session.try_again()
            return {session.session_id: 1 for session in late[:budget]}
        due = {session.session_id for session in participants if probes.is_due(session, number, round_s, len(sessions))}
        if not due:
            return {}
        states = [self._state(session, rooms, round_s, probe=session.session_id in due) for session in sessions]
        lengths: dict[bytes, int] = {}
        for session, hoped in zip(sessions, self._share_out(self.policy, states, budget) or (), strict=False):
            if session.session_id in due:
                probes.begin(session, number)
                if length := min(probes.LENGTH, hoped, budget):
                    lengths[session.session_id] = length
                    budget -= length
        return lengths

    def handed_out(self, sessions: Sequence[Session]) -> int:
        """The budget for lengths such that the sum of share x length over drafting sessions comes to C.

        Lengths of clients with late drafts are left out: they may never arrive.
        """
        budget = int(min(self.permitted, MOST_ASSIGNED) * self.budget)
        if not self.mode.is_continuous:
            return budget
        drafting = [session for session in sessions if session.assigned and not session.client.num_late]
        assigned = sum(session.assigned or 0 for session in drafting)
        expected = sum(session.share * (session.assigned or 0) for session in drafting)
        if expected <= 0:
            return budget
        return min(int(budget * assigned / expected), self.budget * len(sessions))

    def _state(self, session: Session, rooms: Mapping[bytes, int], round_s: float, probe: bool = False) -> ClientState:
        """What the policy knows of a session, or with `probe` what it would if its drafts were accepted again."""
        client = session.client
        acceptance = min(session.acceptance.value, session.acceptance_bound.most)
        return ClientState(
            acceptance_rate=max(acceptance, probes.HOPED) if probe else acceptance,
            goodput=max(client.goodput.value, SMALLEST_GOODPUT),
            weight=client.weight,
            max_length=min(self._max_length(session, probe), rooms.get(session.session_id, self.budget)),
            client_id=client.name,
            draft_s_per_token=client.draft_s_per_token,
            round_trip_s=session.round_trip_s + client.draft_s_per_token,  # it catches up, then drafts
            ahead=session.ahead_share,
            context_len=len(session.tokens),
            slo=session.owed(round_s),
        )

    def permit(self, sessions: Sequence[Session], round_s: float) -> dict[bytes, int]:
        """How many tokens beyond its text each session may have drafted: the policy's allocation, Eq. (5) by default.

        sessions: every active session that has had its first token; those whose draft model may offer nothing are left
        out. What is shared out is `permitted` budgets, since the choice cuts what a round has no room for. Nobody gets
        less than LEAST_PERMISSION, and nobody much more than its draft node has shown to deliver.
        """
        offering = [session for session in sessions if session.takes_model_offers]
        if self.permissions is None or not offering:
            return {}
        rooms = caps.room(offering, offering)
        states = [self._offering_state(session, rooms, round_s) for session in offering]
        allocated = self._share_out(self.permissions, states, int(self.permitted * self.budget))
        if allocated is None:
            return {}
        return {
            session.session_id: min(max(length, LEAST_PERMISSION), session.max_length)
            for session, length in zip(offering, allocated, strict=True)
        }

    def _offering_state(self, session: Session, rooms: Mapping[bytes, int], round_s: float) -> ClientState:
        """What the policy knows of a session whose draft model drafts while rounds go on."""
        client = session.client
        reach = LEAST_PERMISSION + int(REACH * client.delivered)
        longest = min(session.max_length, MAX_OFFER, reach, rooms.get(session.session_id, MAX_OFFER))
        return ClientState(
            acceptance_rate=min(session.acceptance.value, session.acceptance_bound.most),
            goodput=max(client.goodput.value, SMALLEST_GOODPUT),
            weight=client.weight,
            max_length=longest,
            client_id=client.name,
            context_len=len(session.tokens),
            slo=session.owed(round_s),
        )

    def _may_draft(self, session: Session) -> bool:
        """Whether it may be assigned a length."""
        return self.permissions is None or (session.takes_drafts and not session.takes_model_offers)

    def _max_length(self, session: Session, probe: bool) -> int:
        if not self._may_draft(session):
            return 0
        longest = min(session.max_length, 1 if session.client.num_late else self.budget)
        if probe:  # the probe itself is short
            return longest
        if session.cannot_draft:
            return 0
        return min(longest, self.budget if session.client.draft_s_per_token else self.first_length)
