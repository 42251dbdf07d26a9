"""Tokens that rounds carry for sure, and what is kept in reserve when promises are planned.

Rounds end where they end, not where a deadline is: so they are planned longer, first tokens earlier, and a part of each
is left to best effort.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from goodspeed.fair.round_time import MOST_TOKENS, CostModel

HEADROOM_S = 0.005
"""So much earlier than it is due a first token is planned, beside a round, as in the code of SLOs-Serve's authors."""

SURE = 3.0
"""Rounds are planned to take so many times their usual relative error longer than modelled, since a promise that rests
on a mean is broken in every other round."""

FLOOR = 0.25
"""Each client that waits with best effort keeps this part of its weight's share of every round. All floors together are
at most this part of a round, so promises are given for the rest, of rounds and of KV memory: whoever comes later then
breaks none."""

FIRST_TOKEN_S = 10.0
"""The TTFT of a promised text that asks for none, and of one that was under way when it is opened again."""

LATE_S = 1.0
"""A prompt that is late already is planned to be prefilled in so many seconds."""


def headroom_s(*rounds_s: float) -> float:
    """Seconds by which a first token is planned before it is due: the shortest of these rounds, and a little."""
    return HEADROOM_S + (min(rounds_s) if min(rounds_s) < inf else 0.0)


def planned_s(left_s: float, early_s: float) -> float:
    """Seconds until a first token is planned that is due in `left_s`: so much earlier, or as soon as can be.

    What is late is planned for soon: it must not stop all other promises.
    """
    if left_s <= 0.0:
        return max(early_s, LATE_S)
    return left_s - early_s if left_s >= 2 * early_s else min(left_s, early_s)


class Capacity:
    """Rounds with given sessions in them, whose time rises with these and what is cached of them.

    What only waits is in no round. With an overload that is most of what is open, so it must not count.
    """

    def __init__(self, cost: CostModel, usual_error: float, most: int, num_sessions: int, context: float) -> None:
        """usual_error: relative, of the cost. most: tokens of a round. context: tokens of the sessions' texts."""
        self._cost, self._most, self._num_sessions, self._context = cost, most, num_sessions, context
        self._longer = 1.0 + SURE * usual_error
        self._largest_s = self._round_s(most)
        self.least_s = self._round_s(num_sessions)  # of a round with a token of each

    def tokens_in(self, seconds: float) -> float:
        """Tokens of these sessions that fit: into one round, or into several that are as large as can be."""
        if max(0.0, seconds) >= MOST_TOKENS * self._largest_s:
            return MOST_TOKENS  # where no round takes any time, say
        rounds, left_s = divmod(max(0.0, seconds), self._largest_s)
        rest = self._cost.tokens_in(left_s / self._longer, self._num_sessions, self._context)
        return min(MOST_TOKENS, rounds * self._most + min(self._most, rest))

    def promised_in(self, seconds: float, share: float = 1.0) -> float:
        """Tokens of `tokens_in` that may be promised, for so large a share of the node: the floors take the others."""
        return share * (1.0 - FLOOR) * self.tokens_in(seconds)

    def beside(self, seconds: float, num_tokens: int, others: Sequence[int]) -> int:
        """Tokens of others that one round of so many seconds has room for beside so many of these sessions.

        others: lengths of the texts of those who could take part, in the order in which they would. Each brings its
        session and its text into the round with its first token.
        """
        contexts = [0, *accumulate(others)]
        most = range(1, max(0, min(self._most, int(self.tokens_in(seconds))) - num_tokens) + 1)

        def round_s(more: int) -> float:
            joining = min(more, len(others))
            return self._round_s(num_tokens + more, joining, contexts[joining])

        return bisect_right(most, seconds, key=round_s)

    def _round_s(self, num_tokens: int, more_sessions: int = 0, more_context: int = 0) -> float:
        sessions, context = self._num_sessions + more_sessions, self._context + more_context
        return self._longer * float(self._cost.round_s(num_tokens, sessions, context))
