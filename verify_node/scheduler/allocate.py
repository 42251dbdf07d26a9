"""Estimates from each round, and permissions for the next: Eq. (3), Eq. (4) and Eq. (5) of the GoodSpeed paper.

Observes acceptance per session and goodput per client. Asks the policy how many tokens beyond its text each session may
have drafted.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

from goodspeed.errors import PolicyError
from goodspeed.fair.estimators import INITIAL_ACCEPTANCE, AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.policies import ClientState, Policy
from goodspeed.fair.policies.gradient import goodput_bounds
from goodspeed.registry import Misfits
from goodspeed.wire.fields import MAX_DRAFT
from verify_node.clients.client import LEAST_ANSWER_S, Client
from verify_node.scheduler.commit import Moved
from verify_node.session.session import Session

INITIAL_WORTH = 3.0
"""Drafted tokens that the initial acceptance counts as, where evidence is weighed. With 1, luck decides too much; with
10, the initial value persists too long; measured, see the log."""

INITIAL_GOODPUT = 1.0
"""Goodput of plain decoding."""

SMALLEST_GOODPUT = 1e-9

SMALLEST_WORTH = 1e-250

LEAST_PERMISSION = 4
"""Tokens that every draft model may draft where rounds do not wait for drafts, beyond those by which its text grows in
a round trip: fewer would be overtaken on arrival, and no client could show that its drafts are now worth more."""

PERMITTED = 3.0
"""Number of budgets that the policy shares out where drafted tokens are selected: selection drops the excess, and
permissions include tokens in flight. Measured with 1 to 4, see the log: with fewer, permissions hold up clients whose
drafts are accepted; with more, nothing is gained."""

REACH = 2
"""Bound on a permission beyond the least, in multiples of the client's `draft_depth`: room to improve."""

PROBE_ROUNDS = 20
"""Rounds without a draft after which a session that waits for its drafts may draft one token, in case its draft model
has improved. All other sessions may always draft a few."""

TRIED_SHARE, MOST_TRIED_S = 0.02, 1.0
"""Largest share of a session's time that such trials take, if only that session waits for them; and the longest answer
time, in seconds, that this rule assumes: a longer one may have been a pause."""

FIRST_LENGTH = 2
"""Longest draft that a session waits for while the draft time is unknown."""


class Allocator:
    """Holds the estimates and turns them into permissions."""

    def __init__(
        self, policy: Policy, budget: int, *, eta: float, beta: float, is_barrier: bool, weigh_evidence: bool
    ) -> None:
        """is_barrier: rounds wait for all drafts and verify them whole, so the budget itself is shared out."""
        self.policy = policy
        self.budget = budget
        self.eta = eta
        self.beta = beta
        self.is_barrier = is_barrier
        self.fairness: float = getattr(policy, "fairness", 1.0)  # of the utility U whose derivative is a token's worth
        self._goodput_bounds = goodput_bounds(self.fairness)
        self.prior_tokens = INITIAL_WORTH if weigh_evidence else None
        self.clients: dict[str, Client] = {}
        self.misfits = Misfits("the policy", "draft models may not draft after such a round")

    def client(self, name: str) -> Client:
        """Returns the client of that name; its estimates outlive its connections."""
        if name not in self.clients:
            self.clients[name] = Client(name, self._unknown_acceptance(), GoodputEstimator(self.beta, INITIAL_GOODPUT))
        return self.clients[name]

    def set_draft_model(self, client: Client, draft_fingerprint: str) -> None:
        """Sets the client's draft model; forgets the acceptance rate of a different model."""
        client.set_draft_model(draft_fingerprint, self._unknown_acceptance())

    def _unknown_acceptance(self) -> AcceptanceEstimator:
        return AcceptanceEstimator(self.eta, INITIAL_ACCEPTANCE, self.prior_tokens)

    def worth_of(self, client: Client) -> float:
        """Returns what another token of this client adds to the sum of utilities: w U'(X) = w X^-fairness.

        w: the client's weight. X: its goodput, kept within bounds, so that the result is finite and above 0.
        """
        least, most = self._goodput_bounds
        goodput = min(max(client.goodput.value, SMALLEST_GOODPUT, least), most)
        return float(max(client.weight * goodput**-self.fairness, SMALLEST_WORTH))

    def session_acceptance(self, client: Client) -> AcceptanceEstimator:
        """Returns the initial estimate of a new session, from its client's sessions."""
        return AcceptanceEstimator(self.eta, client.acceptance.value, client.acceptance.worth)

    def observe(self, number: int, moved: Sequence[Moved]) -> None:
        """Applies Eq. (3) to each session, and Eq. (4) to each client, once for the rounds since its previous update.

        Also updates calibrations and the gain of waiting for drafts. number: of the finished round.
        """
        tokens: dict[str, int] = defaultdict(int)
        for move in moved:
            session, client = move.session, move.session.client
            tokens[client.name] += len(move.taken)
            if num_observed := move.num_observed:
                session.observe_draft(move.outcome.agreement, num_observed, *move.num_first_choices)
            for source, codes, num_accepted in move.claims:
                session.drafts.observe_claims(source, codes, num_accepted)
            if move.entry.answered is not None:
                client.observe_answer(move.outcome.num_accepted, in_time=move.entry.answered)
            session.drafts.end_round(move.outcome.num_accepted, move.entry.model_drafted)
        for name, num_tokens in tokens.items():
            self.clients[name].observe_goodput(num_tokens, number)

    def permit(self, number: int, sessions: Sequence[Session], round_s: float) -> dict[bytes, int]:
        """Returns how many tokens beyond its text each session may have drafted after round `number`, by Eq. (5).

        sessions: the active ones for which the next round can decide a token. Sessions without a possible drafter are
        left out of the result. Where rounds do not wait for drafts, `PERMITTED` budgets are shared out. Each session
        gets at least LEAST_PERMISSION, unless it waits for its drafts, and not much more than its draft node has
        delivered.
        """
        drafting = [one for one in sessions if one.takes_drafts and (one.uses_model or self.waits(one))]
        if not drafting:
            return {}
        budget = self.budget if self.is_barrier else int(PERMITTED * self.budget)
        tried = [one for one in drafting if self.waits(one) and self._is_tried(one, number, round_s)][:budget]
        is_alone = len(sessions) == 1
        states = [self._state(session, round_s, is_alone=is_alone) for session in drafting]
        try:
            allocated = self.policy.allocate(states, budget - len(tried))
        except PolicyError as error:  # of a user's own policy: it costs drafts, but not the node
            self.misfits.note(error, str(error))
            return {}
        permitted = {}
        for session, length in zip(drafting, allocated, strict=True):
            least = 0 if self.waits(session) else _least_useful(session, round_s)  # whatever the policy says
            permitted[session.session_id] = min(max(length, least), session.max_length)
        return permitted | {one.session_id: max(1, permitted[one.session_id]) for one in tried}

    def _state(self, session: Session, round_s: float, *, is_alone: bool) -> ClientState:
        """Returns the session as input of the policy."""
        client = session.client
        longest = min(session.max_length, MAX_DRAFT)
        if not self.is_barrier:
            longest = min(longest, _least_useful(session, round_s) + int(REACH * client.draft_depth))
        if not self.is_barrier and self.waits(session):  # tokens beyond a round's budget would be drafted in vain
            longest = best_draft_length(session, min(longest, self.budget), round_s, is_alone=is_alone)
        return ClientState(
            acceptance_rate=session.acceptance_rate,
            goodput=max(client.goodput.value, SMALLEST_GOODPUT),
            weight=client.weight,
            max_length=longest,
            client_id=client.name,
            draft_s_per_token=client.draft_s_per_token,
            round_trip_s=session.round_trip_s,
            context_len=len(session.tokens),
        )

    def waits(self, session: Session) -> bool:
        """True if the session waits for its drafts, so that they cost it time."""
        return self.is_barrier or session.verification == "ratio"

    def _is_tried(self, session: Session, number: int, round_s: float) -> bool:
        """True if a session that may draft nothing has waited long enough to try one token."""
        if session.drafts.zero_since is None:
            return False
        wait_s = 0.0 if self.is_barrier else min(session.client.answer_s, MOST_TRIED_S) / TRIED_SHARE
        return number - session.drafts.zero_since >= max(PROBE_ROUNDS, wait_s / round_s if round_s else 0.0)


def _least_useful(session: Session, round_s: float) -> int:
    """Returns LEAST_PERMISSION, and the tokens by which its text grows in a round trip without drafts."""
    overtaken = int(session.round_trip_s / round_s) if round_s else 0
    return min(LEAST_PERMISSION + overtaken, MAX_DRAFT)


def best_draft_length(session: Session, most: int, round_s: float, *, is_alone: bool) -> int:
    """Returns the length, at most `most`, that lets a session that waits for its drafts grow fastest; 0: no draft.

    A draft costs its session the round trip and the time of its tokens. Beside other sessions, whose rounds follow one
    another, its draft then waits for the next round's start. The time per token is estimated from the client's earlier
    drafts; until the first, the length is FIRST_LENGTH at most.
    """
    client = session.client
    if not client.answer_s:
        return min(most, FIRST_LENGTH)
    token_s = client.draft_s_per_token
    tokens, best, fastest = 1.0, 0, 1.0 / round_s if round_s else 0.0
    for length in range(1, most + 1):
        tokens += session.acceptance_rate**length
        wait_s = session.round_trip_s + (length + 1) * token_s
        if round_s and not is_alone:
            wait_s = ceil(wait_s / round_s) * round_s
        pace = tokens / max(round_s + wait_s, LEAST_ANSWER_S)
        if pace > fastest:
            best, fastest = length, pace
    return best
