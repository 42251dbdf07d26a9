"""What each round teaches, and who may draft how much next: Eq. (3), Eq. (4) and Eq. (5) of the GoodSpeed paper.

Observes acceptance per session and goodput per client, and asks the policy for lengths. In continuous rounds not
everybody takes part in every round, so the budget that is handed out is steered until what arrives per round comes to
C. Knows nothing about messages.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence

from msgspec import Struct

from goodspeed.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.policies import ClientState, Policy
from verify_node.sessions import Client, Session

INITIAL_ACCEPTANCE = 0.7
"""Optimistic, so that a new session is tried with a few tokens rather than none."""

INITIAL_WORTH = 3.0
"""Drafted tokens that it counts as, where evidence is weighed. With 1 chance decides too much, with 10 it is believed
for too long; measured, see the log."""

INITIAL_GOODPUT = 1.0
"""What plain decoding gives."""

FIRST_LENGTH = 4
"""Of a client's first draft where time counts: nobody knows yet how long it takes, and others may wait for it."""

SHARE_SMOOTHING = 0.1
PROBE_ROUNDS = 20
PROBE_ROUND_TRIPS = 100
PROBE_SHARE = 0.02
"""Of all time, for all probes together, where every round waits for them and time counts."""


class Observation(Struct, frozen=True):
    """What one round showed of one session."""

    session: Session
    agreement: float  # sum of Eq. (3)'s indicators over the drafted positions
    num_drafted: int
    num_tokens: int  # delivered


class Scheduler:
    """Keeps the estimates and turns them into next draft lengths."""

    def __init__(
        self,
        policy: Policy,
        budget: int,
        *,
        eta: float,
        beta: float,
        steer: bool,
        weigh_evidence: bool = True,
        weigh_time: bool = False,
    ) -> None:
        self.policy = policy
        self.budget = budget
        self.eta = eta
        self.beta = beta
        self.steer = steer
        self.first_length = FIRST_LENGTH if weigh_time else budget
        self.all_wait = weigh_time and not steer
        self.worth = INITIAL_WORTH if weigh_evidence else None
        self.clients: dict[str, Client] = {}

    def client(self, name: str) -> Client:
        """The client of that name; its estimates outlive its connections."""
        if name not in self.clients:
            acceptance = AcceptanceEstimator(self.eta, INITIAL_ACCEPTANCE, self.worth)
            self.clients[name] = Client(name, acceptance, GoodputEstimator(self.beta, INITIAL_GOODPUT))
        return self.clients[name]

    def session_acceptance(self, client: Client) -> AcceptanceEstimator:
        """A new session starts from what its client's sessions have shown."""
        return AcceptanceEstimator(self.eta, client.acceptance.value, client.acceptance.worth)

    def observe(self, number: int, observations: Sequence[Observation]) -> None:
        """Eq. (3) for every session, Eq. (4) once for every client, with the rounds since its last observation."""
        tokens: dict[str, int] = defaultdict(int)
        for seen in observations:
            client = seen.session.client
            tokens[client.name] += seen.num_tokens
            if seen.num_drafted:
                seen.session.acceptance.observe(seen.agreement, seen.num_drafted)
                client.acceptance.observe(seen.agreement, seen.num_drafted)
        for name, num_tokens in tokens.items():
            client = self.clients[name]
            client.goodput.observe(num_tokens, rounds=max(1, number - client.observed_round))
            client.observed_round = number

    def observe_shares(self, drafting: Iterable[Session], present: Container[bytes]) -> None:
        """Smooths in how many rounds each drafting session takes part.

        `present`: whose draft was there, also where the budget did not reach; else more would be handed out because
        too much was.
        """
        for session in drafting:
            took_part = float(session.session_id in present)
            session.share += SHARE_SMOOTHING * (took_part - session.share)

    def allocate(
        self, number: int, sessions: Sequence[Session], participants: Sequence[Session], round_s: float
    ) -> dict[bytes, int]:
        """Next draft lengths of the participants, from Eq. (5) over all active sessions; probes come out of the budget.

        sessions: every active session that has had its first token; participants: those among them to be told.
        """
        budget = self.handed_out(sessions)
        probes = [session for session in participants if self._is_due(session, number, len(sessions), round_s)][:budget]
        for session in probes:
            session.cannot_draft = False
        states = [self._state(session) for session in sessions]
        allocated = dict(
            zip(
                (session.session_id for session in sessions),
                self.policy.allocate(states, budget - len(probes)),
                strict=True,
            )
        )
        lengths = {session.session_id: allocated[session.session_id] for session in participants}
        lengths.update({session.session_id: max(1, lengths[session.session_id]) for session in probes})
        for session in participants:
            self._note(session, lengths[session.session_id], number)
        return lengths

    def handed_out(self, sessions: Sequence[Session]) -> int:
        """The budget for lengths such that the sum of share x length over drafting sessions comes to C."""
        if not self.steer:
            return self.budget
        assigned = sum(session.assigned or 0 for session in sessions)
        expected = sum(session.share * (session.assigned or 0) for session in sessions)
        if expected <= 0:
            return self.budget
        return min(int(self.budget * assigned / expected), self.budget * len(sessions))

    def _state(self, session: Session) -> ClientState:
        """Times are those that the verify node waits for: drafting ahead of verdicts hides the rest."""
        client = session.client
        return ClientState(
            acceptance_rate=session.acceptance.value,
            goodput=max(client.goodput.value, 1e-9),
            weight=client.weight,
            max_length=self._max_length(session),
            client_id=client.name,
            draft_s_per_token=session.wait * client.draft_s_per_token,
            round_trip_s=session.wait * (session.round_trip_s + client.draft_s_per_token),  # it catches up, then drafts
            context_len=len(session.tokens),
        )

    def _max_length(self, session: Session) -> int:
        if session.cannot_draft:
            return 0
        return min(session.max_length, self.budget if session.client.draft_s_per_token else self.first_length)

    def _is_due(self, session: Session, number: int, num_sessions: int, round_s: float) -> bool:
        """Whether a session at length 0 has waited long enough to be tried again."""
        if session.zero_since is None or session.max_length < 1:
            return False
        return number - session.zero_since >= max(PROBE_ROUNDS, self._patience(session, num_sessions, round_s))

    def _patience(self, session: Session, num_sessions: int, round_s: float) -> float:
        """Rounds between probes of which each takes long; where all wait for it, that is everybody's time."""
        if round_s <= 0:
            return 0.0
        if self.all_wait:
            away_s = session.round_trip_s + 2 * session.client.draft_s_per_token  # it catches up, then drafts a token
            return num_sessions * away_s / (PROBE_SHARE * round_s)
        return PROBE_ROUND_TRIPS * session.round_trip_s / round_s

    @staticmethod
    def _note(session: Session, length: int, number: int) -> None:
        """Sessions may be too short for a probe: one that begins at length 0 waits from when its client's did."""
        session.assigned = length
        if length > 0:
            session.zero_since = session.client.zero_since = None
            return
        if session.client.zero_since is None:
            session.client.zero_since = number
        if session.zero_since is None:
            session.zero_since = session.client.zero_since
