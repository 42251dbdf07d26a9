"""How much rounds with given sessions carry in so many seconds."""

from goodspeed.fair.latency.models import MOST_TOKENS, CostModel


class PlannedRounds:
    """Rounds with given sessions in them, whose time rises with these and what is cached of them.

    What only waits is in no round. With an overload that is most of what is open, so it must not count.
    """

    def __init__(self, cost: CostModel, longer: float, most: int, num_sessions: int, context: float) -> None:
        """Plans rounds to take so many times longer than modelled.

        most: tokens of a round. context: tokens of the sessions' texts, all together.
        """
        self._cost, self._most, self._num_sessions, self._context = cost, most, num_sessions, context
        self._longer = longer
        self._largest_s = self._round_s(most)
        self.least_s = self._round_s(num_sessions)  # of a round with a token of each

    def tokens_in(self, seconds: float) -> float:
        """Tokens of these sessions that fit: into one round, or into several that are as large as can be."""
        if max(0.0, seconds) >= MOST_TOKENS * self._largest_s:
            return MOST_TOKENS  # where no round takes any time, say
        rounds, left_s = divmod(max(0.0, seconds), self._largest_s)
        rest = self._cost.tokens_in(left_s / self._longer, self._num_sessions, self._context)
        return min(MOST_TOKENS, rounds * self._most + min(self._most, rest))

    def _round_s(self, num_tokens: int, more_sessions: int = 0, more_context: int = 0) -> float:
        sessions, context = self._num_sessions + more_sessions, self._context + more_context
        return self._longer * float(self._cost.round_s(num_tokens, sessions, context))
