"""How much rounds carry for sure in so many seconds, by the model of their time. No I/O, no clock, no torch."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from goodspeed.admission.headroom import SURE
from goodspeed.fair.latency import Refined


class Capacity:
    """Rounds with given sessions in them, whose time rises with these and what is cached of them.

    What only waits is in no round. With an overload that is most of what is open, so it must not count.
    """

    def __init__(self, cost: Refined, most: int, num_sessions: int, context: int) -> None:
        """most: tokens of a round. context: tokens of the sessions' texts, all together."""
        self._cost, self._most, self._num_sessions, self._context = cost, most, num_sessions, context
        self._longer = 1.0 + SURE * cost.usual_error
        self._largest_s = self._round_s(most)
        self.least_s = self._round_s(num_sessions)  # of a round with a token of each

    def tokens_in(self, seconds: float) -> float:
        """Tokens of these sessions that fit: into one round, or into several that are as large as can be."""
        rounds, left_s = divmod(max(0.0, seconds), self._largest_s)
        rest = self._cost.tokens_in(left_s / self._longer, self._num_sessions, self._context)
        return rounds * self._most + min(self._most, rest)

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
