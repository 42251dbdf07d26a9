"""What a round does for sessions with objectives, before drafted tokens are chosen by what they bring.

The mathematics is in `verify_node.slo.owing`. Knows nothing about prices, memory or verdicts.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from verify_node.session.session import Session
from verify_node.slo.owing import Owing, most_round_s, needs


class Keeping:
    """Who is owed what by one round."""

    def __init__(self, ready: Sequence[Session], shortest_s: float, now: float) -> None:
        """ready: the sessions of the round. shortest_s: its seconds without drafted tokens."""
        ledgers = [(session.session_id, session.ledger) for session in ready if session.ledger is not None]
        self._weights = {session.client.name: session.client.weight for session in ready} if ledgers else {}
        self._shortest_s = shortest_s
        self._now = now
        self._share_left = 1.0  # share of the budget that the others keep, however short the round has to be
        self.behind = frozenset(key for key, ledger in ledgers if ledger.owed(now, shortest_s) > 1.0)
        self.most_s = inf
        for session in ready:
            if session.ledger is not None:
                most_s = most_round_s([session.ledger], shortest_s, now)
                if most_s < self.most_s:
                    self.most_s = most_s
                    self._share_left = 1.0 - session.client.weight / sum(self._weights.values())

    def needs(self, drafted: Sequence[tuple[Session, Sequence[float]]], budget: int) -> list[float]:
        """`Candidate.need` of each session with drafted tokens of these odds."""
        if not self.behind:
            return [0.0] * len(drafted)
        found = [0.0] * len(drafted)
        owing = {
            k: Owing(session.ledger, session.client.name, odds)
            for k, (session, odds) in enumerate(drafted)
            if session.ledger is not None
        }
        needed = needs(list(owing.values()), self._weights, budget, self._shortest_s, self._now)
        for k, need in zip(owing, needed, strict=True):
            found[k] = need
        return found

    def most_drafted(self, seconds: Sequence[float], budget: int) -> int:
        """Most drafted tokens that keep the round short enough. seconds: of the round, by their number.

        The client whose text is the tightest takes no more from the others in this way than its weight's share: else
        one that asks for a TPOT just above a round's time would take all drafts from everybody.
        """
        if self.most_s == inf:
            return budget
        return min(budget, max(int(self._share_left * budget), bisect_right(seconds, self.most_s) - 1))


NOBODY = Keeping((), 0.0, 0.0)
"""No session has objectives, or nobody looks at them."""
