"""How many tokens rounds carry for sure, of promised sessions and of others beside them."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from goodspeed.fair.latency import Refined
from goodspeed.fair.latency.rounds import PlannedRounds
from goodspeed.slo.headroom import FLOOR, SURE


class Capacity(PlannedRounds):
    """Rounds with given sessions in them, and others beside these."""

    def __init__(self, cost: Refined, most: int, num_sessions: int, context: int) -> None:
        """most: tokens of a round. context: tokens of the sessions' texts, all together."""
        super().__init__(cost, 1.0 + SURE * cost.usual_error, most, num_sessions, context)

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
