"""Drafted tokens that one round owes to sessions with deadlines, before others are chosen by what they bring.

AdaServe's SLO phase: a session that a single token does not bring up to its TPOT needs accepted drafted tokens; those
that need most go first, and nobody is given more than a bound (Alg. 2). On top of that no client's needs exceed its
weight's share of the budget: else whoever claims the shortest TPOT would take all of it. AdaSpec's cap (Alg. 3): the
round stays as short as sessions need that one token keeps on time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from verify_node.slo.deadline import Deadline

CROWDING = 1.2
"""A session's needs may take so many times an equal part of the budget, as in the code of AdaServe's authors."""


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
        # A session that is late even in the shortest round is helped by needs, and must not keep rounds short.
        in_time = [(left_s, one) for one in self._deadlines.values() if shortest_s <= (left_s := one.left_s(now)) < inf]
        self._most_s, tightest = min(in_time, key=lambda pair: pair[0], default=(inf, None))
        share = weights[tightest.client] / sum(weights.values()) if tightest is not None else 0.0
        self._share_left = 1.0 - share  # of the budget, what the others keep, however short the round has to be

    def of_drafts(self, path_probability: Mapping[bytes, Sequence[float]], budget: int) -> dict[bytes, float]:
        """`Candidate.need` of sessions: what their drafted tokens have to bring, as a sum of path probabilities.

        path_probability: of the tokens that are drafted for each, the highest first. What would exceed a bound, or
        what a session's drafted tokens can bring at most, is cut. Sessions that nothing was drafted for are left out.
        """
        found = {key: 0.0 for key in path_probability if key in self._deadlines}
        behind = [key for key in found if key in self.owed_more]
        each = max(1, int(CROWDING * budget / max(1, len(behind))))
        left = _shares(self._weights, budget)
        for key in sorted(behind, key=lambda key: -self._owed[key]):
            client, missing = self._deadlines[key].client, self._owed[key]
            for probabilities in path_probability[key][: min(each, left[client])]:
                if found[key] >= missing:
                    break
                found[key] += probabilities
                left[client] -= 1
            found[key] = min(found[key], missing)
        return found

    def most_drafted(self, seconds: Sequence[float], budget: int) -> int:
        """Most drafted tokens that keep the round short enough. seconds: of the round, by their number.

        The client whose session is the tightest takes no more from the others in this way than its weight's share:
        else one that asks for a TPOT just above a round's time would take all drafts from everybody.
        """
        if self._most_s == inf:
            return budget
        return min(budget, max(int(self._share_left * budget), bisect_right(seconds, self._most_s) - 1))


def _shares(weights: Mapping[str, float], budget: int) -> dict[str, int]:
    """Returns the tokens of the budget that are each client's, by name.

    Each has one at least: where there are more clients than tokens, whoever needs them most goes first. Without any
    weight nobody has a part.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0)
    return {name: max(1, int(budget * weight / total)) for name, weight in weights.items()}


NONE = Needs((), {}, 0.0, 0.0)
"""No session of the round has a deadline."""
