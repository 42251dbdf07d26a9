"""Which drafted tokens the next round verifies: all that arrived, or those that are worth their time.

`Whole` is the paper: drafts arrive as they were assigned, and are verified whole or not yet. `ByOdds` looks at every
drafted token that is there when a round is packed, in drafts, in offers, and in what the verify node drafts itself from
a session's own text. It verifies those that bring the most for the time that they add, by `goodspeed.selection`: a
token's worth is w U'(X) of its client, its odds are what its draft node claims, calibrated by what became of such
claims. The others are cut, never deferred: under match a cut draft is exact. Under ratio a token must not be cut for
what it is, so there its odds are the client's acceptance rate, whatever the token.

Knows nothing about memory, verdicts or tensors.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import Protocol

import numpy as np

from goodspeed.fair.latency import Refined
from goodspeed.fair.selection import Candidate, select
from goodspeed.wire import odds
from verify_node.rounds.drafted import NOTHING, Drafted, of_draft, of_offer
from verify_node.rounds.planner import RoundLimits
from verify_node.rounds.self_drafts import SelfDrafts
from verify_node.session.client import Client
from verify_node.session.session import Session

ALL = odds.LEAST
"""`least_odds` of a verify node that has no bound."""

LEAST_ODDS = 0.02
"""No bound that is told to a draft node is below: the next round may have more room than the last."""


class Choice(Protocol):
    """Chooses the drafted tokens of a round."""

    def choose(self, ready: Sequence[Session]) -> dict[bytes, Drafted]:
        """What each ready session has verified, by session; those with nothing may be left out."""
        ...

    def least_odds(self, client: Client) -> int:
        """Code of the path odds below which a token of this client would not have been verified in the last round."""
        ...

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Forgets what is kept of sessions that are not open any more."""
        ...

    def looks_at_offers(self, yes: bool) -> None:
        """Whether offers and own drafts are looked at from now on."""
        ...


class Whole:
    """Every draft that arrived, whole; what does not fit into the budget waits for the next round."""

    def choose(self, ready: Sequence[Session]) -> dict[bytes, Drafted]:
        """The drafts that arrived, by session."""
        return {session.session_id: of_draft(session) for session in ready if session.draft is not None}

    def least_odds(self, client: Client) -> int:
        """There is no bound."""
        return ALL

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Nothing is kept."""

    def looks_at_offers(self, yes: bool) -> None:
        """They are not, in any case."""


class ByOdds:
    """The tokens that are worth the time that they add to the round."""

    def __init__(
        self,
        cost: Refined,
        limits: RoundLimits,
        worth: Callable[[Client], float],
        self_drafts: SelfDrafts | None = None,
    ) -> None:
        """worth: of one token of a client, w U'(X). self_drafts: None where the verify node drafts nothing itself."""
        self._only_drafts = False  # neither offers nor own drafts are looked at
        self._cost = cost
        self._limits = limits
        self._worth = worth
        self._self_drafts = self_drafts
        self._least_value = 0.0  # worth x path odds that a token had to have in the last round

    def choose(self, ready: Sequence[Session]) -> dict[bytes, Drafted]:
        """What each session with drafted tokens has verified, cut to what is worth it, by session."""
        found = [(session, self._drafted(session)) for session in ready]
        drafted = [(session, one) for session, one in found if one.tokens]
        chosen = {session.session_id: one for session, one in found if session.draft is not None}
        if not drafted:
            return chosen
        rooms = _rooms(drafted)
        candidates = [
            Candidate(_odds(session, one), worth=self._worth(session.client), max_nodes=rooms.get(session.session_id))
            for session, one in drafted
        ]
        seconds = self._seconds(ready)
        nodes = select(candidates, self._limits.budget, round_s=seconds.__getitem__).nodes
        for (session, one), own in zip(drafted, nodes, strict=True):
            chosen[session.session_id] = one.cut(len(own))
        self._note(ready, candidates, nodes, seconds)
        return chosen

    def least_odds(self, client: Client) -> int:
        """From the price of one more token's time in the last round."""
        if not self._least_value:
            return ALL
        return odds.code(max(LEAST_ODDS, self._least_value / self._worth(client)))

    def keep(self, open_sessions: Container[bytes]) -> None:
        """Forgets the texts of sessions that are over."""
        if self._self_drafts is not None:
            self._self_drafts.keep(open_sessions)

    def looks_at_offers(self, yes: bool) -> None:
        """Whether offers and own drafts are looked at from now on."""
        self._only_drafts = not yes

    def _drafted(self, session: Session) -> Drafted:
        if session.draft is not None:
            return of_draft(session)
        if self._only_drafts or not session.takes_offers:
            return NOTHING
        offered = of_offer(session)
        if offered.tokens or self._self_drafts is None:
            return offered
        return self._self_drafts.draft(session, self._least_value / self._worth(session.client))

    def _seconds(self, ready: Sequence[Session]) -> list[float]:
        """Modelled seconds of a round with all of these sessions, by how many drafted tokens it verifies."""
        num_sessions = len(ready)
        context = sum(len(session.tokens) for session in ready)
        num_tokens = num_sessions + np.arange(self._limits.budget + 1)
        seconds = self._cost.round_s(num_tokens, num_sessions, context) + np.zeros(num_tokens.size)
        rising: list[float] = np.maximum.accumulate(seconds).tolist()
        return rising

    def _note(
        self,
        ready: Sequence[Session],
        candidates: Sequence[Candidate],
        nodes: Sequence[Sequence[int]],
        seconds: list[float],
    ) -> None:
        """Remembers what one more token's time would have cost in worth."""
        num = sum(map(len, nodes))
        worth = sum(self._worth(session.client) for session in ready)
        for candidate, own in zip(candidates, nodes, strict=True):
            worth += candidate.worth * float(np.cumprod(candidate.odds)[: len(own)].sum())
        step = seconds[min(num + 1, len(seconds) - 1)] - seconds[min(num, len(seconds) - 2)]
        self._least_value = worth / seconds[num] * step


def _odds(session: Session, drafted: Drafted) -> list[float]:
    """The odds of each token given those before it, as far as they may count for this session's rule."""
    known = min(session.acceptance.value, session.acceptance_bound.most)
    if session.verification == "ratio" or not drafted.codes:
        return [known] * len(drafted.tokens)
    client = session.client
    if drafted.source == "self":
        return client.calibration("self").odds(drafted.codes)
    first = client.calibration("ngram").odds(drafted.codes[: drafted.num_ngram])
    return first + client.calibration("model").odds(drafted.codes[drafted.num_ngram :])


def _rooms(drafted: Sequence[tuple[Session, Drafted]]) -> dict[bytes, int]:
    """Most tokens of each session whose client's key limits what it drafts in one round."""
    sharing: dict[str, list[Session]] = defaultdict(list)
    for session, _ in drafted:
        if session.client.max_round_tokens is not None:
            sharing[session.client.name].append(session)
    rooms: dict[bytes, int] = {}
    for sessions in sharing.values():
        each, left = divmod(sessions[0].client.max_round_tokens or 0, len(sessions))
        rooms |= {session.session_id: each + (place < left) for place, session in enumerate(sessions)}
    return rooms
