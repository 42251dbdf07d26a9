"""Drafted tokens that one round owes to sessions with deadlines, before others are chosen by value.

AdaServe's SLO phase: a session that a single token does not bring up to its TPOT needs accepted drafted tokens. The
neediest sessions go first, and none gets more than a bound (Alg. 2). In addition, no client's needs exceed its weight's
share of the budget: else the client with the shortest TPOT would take all of it. And a session whose drafted tokens
would not bring it up to its TPOT either has no need (our choice, measured): under overload such tokens mostly made
rounds longer, and others late. AdaSpec's cap (Alg. 3): the round stays short enough for the sessions that one token
keeps on time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf

from goodspeed.slo.attainment import SLACK
from verify_node.session.deadline import Deadline

CROWDING = 1.2
"""Bound of a session's needs, in equal shares of the budget among the sessions that are behind and that their drafts
could bring up, as in the code of AdaServe's authors."""


class Needs:
    """The drafted tokens that one round owes to sessions with deadlines."""

    def __init__(
        self, deadlines: Iterable[Deadline], weights: Mapping[str, float], shortest_s: float, now: float
    ) -> None:
        """weights: of all clients in the round, by name. shortest_s: seconds of the round without drafted tokens."""
        self._deadlines = {one.session_id: one for one in deadlines}
        self._weights = weights
        self._owed = {key: one.owed(now, shortest_s) - 1.0 for key, one in self._deadlines.items()}
        self.owed_more = frozenset(key for key, owed in self._owed.items() if owed > 0.0)
        """Sessions that one token does not bring up to their TPOT."""
        # A session that is late even in the shortest round must not keep rounds short.
        in_time = [(left_s, one) for one in self._deadlines.values() if shortest_s <= (left_s := one.left_s(now)) < inf]
        self._most_s, tightest = min(in_time, key=lambda pair: pair[0], default=(inf, None))
        share = weights[tightest.client] / sum(weights.values()) if tightest is not None else 0.0
        self._share_left = 1.0 - share  # share of the budget that others retain, however short the round must be

    def of_drafts(self, path_probability: Mapping[bytes, Sequence[float]], budget: int) -> dict[bytes, float]:
        """Returns `Candidate.need` by session: accepted drafted tokens that it needs, as a sum of path probabilities.

        path_probability: of each session's drafted tokens, the highest first. 0 where the tokens within the bounds do
        not bring the session up to its TPOT. Omits sessions without drafted tokens.
        """
        found = {key: 0.0 for key in path_probability if key in self._deadlines}
        behind = [
            key
            for key in found
            if key in self.owed_more and sum(path_probability[key][:budget]) >= self._owed[key] - SLACK
        ]
        each = max(1, int(CROWDING * budget / max(1, len(behind))))
        left = _shares(self._weights, budget)
        for key in sorted(behind, key=lambda key: -self._owed[key]):
            client, missing = self._deadlines[key].client, self._owed[key]
            sums = [*accumulate(path_probability[key][: min(each, left[client])])]
            enough = bisect_left(sums, missing - SLACK)
            if enough < len(sums):
                found[key], left[client] = min(missing, sums[enough]), left[client] - enough - 1
        return found

    def most_drafted(self, seconds: Sequence[float], budget: int) -> int:
        """Returns the most drafted tokens with which a round ends in time for the session that can wait least.

        seconds: a round's time, by drafted tokens. The other clients keep their shares of the budget by weight however
        short the round must be: else a TPOT just above a round's time would take all drafts from all clients.
        """
        if self._most_s == inf:
            return budget
        return min(budget, max(int(self._share_left * budget), bisect_right(seconds, self._most_s) - 1))


def _shares(weights: Mapping[str, float], budget: int) -> dict[str, int]:
    """Returns each client's tokens of the budget, by name.

    Each has at least one: where clients outnumber tokens, the neediest goes first. All have 0 if no client has a
    weight.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0)
    return {name: max(1, int(budget * weight / total)) for name, weight in weights.items()}


NONE = Needs((), {}, 0.0, 0.0)
"""No session of the round has a deadline."""
