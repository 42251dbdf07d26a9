"""Tokens that rounds can reliably carry, and the reserves that the planning of promises sets aside.

Rounds do not end exactly at deadlines. So longer rounds and earlier first tokens are planned, and a part of each round
is left to best effort.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from goodspeed.fair.round_time import MOST_TOKENS, CostModel

HEADROOM_S = 0.005
"""Seconds between a first token's planned and due time, in addition to a round, as in the code of SLOs-Serve's
authors."""

SURE = 4.0
"""Planned rounds are longer than modelled by this multiple of the usual relative error. A promise based on the mean
would be broken in every other round, and with 3 more than one in a hundred was (`experiments/LOG.md`)."""

FLOOR = 0.25
"""Guaranteed share (floor) of best effort: each client with waiting best-effort texts gets this part of its weight's
share of every round. All floors together are at most this part of a round. Promises use only the rest of rounds and of
KV memory, so later arrivals break none."""

FIRST_TOKEN_S = 10.0
"""TTFT in seconds of a promised text without a TTFT objective, and of a text that was under way when reopened."""

LATE_S = 1.0
"""Seconds in which a prompt that is already late is planned to be prefilled."""


def headroom_s(*rounds_s: float) -> float:
    """Returns how early a first token is planned before it is due: by the shortest of these rounds and HEADROOM_S."""
    return HEADROOM_S + (min(rounds_s) if min(rounds_s) < inf else 0.0)


def planned_s(left_s: float, early_s: float) -> float:
    """Returns the seconds until a first token due in `left_s` is planned: `early_s` less, or as soon as possible.

    A late token is planned for soon, so that it does not block all other promises.
    """
    if left_s <= 0.0:
        return max(early_s, LATE_S)
    return left_s - early_s if left_s >= 2 * early_s else min(left_s, early_s)


class Capacity:
    """Token capacity of rounds with given sessions; a round's time grows with its sessions and their cached tokens.

    Sessions that only wait are in no round. Under overload most open sessions wait, so they must not count.
    """

    def __init__(
        self,
        cost: CostModel,
        usual_error: float,
        most: int,
        num_sessions: int,
        context: float,
        extra_s: float = 0.0,
    ) -> None:
        """usual_error: relative, of the cost model. most: tokens of a round. context: tokens of the sessions' texts.

        extra_s: seconds of each round that the cost model lacks (`Refined.work_s`, `Refined.change_s`).
        """
        self._cost, self._most, self._num_sessions, self._context = cost, most, num_sessions, context
        self._longer, self._extra_s = 1.0 + SURE * usual_error, extra_s
        self._largest_s = self._round_s(most)
        self.least_s = self._round_s(num_sessions)  # of a round with one token of each session

    def tokens_in(self, seconds: float) -> float:
        """Returns the tokens of these sessions that fit into `seconds`: one round, or several of the largest size."""
        if max(0.0, seconds) >= MOST_TOKENS * self._largest_s:
            return MOST_TOKENS  # e.g. if rounds take no time
        rounds, left_s = divmod(max(0.0, seconds), self._largest_s)
        rest = self._cost.tokens_in(
            left_s / self._longer - self._extra_s, self._num_sessions, self._context, self._most
        )
        return min(MOST_TOKENS, rounds * self._most + rest)

    def seconds_for(self, num_tokens: int) -> float:
        """Inverts `tokens_in`: the least seconds into which so many tokens fit."""
        rounds, rest = divmod(num_tokens, self._most)
        return rounds * self._largest_s + (self._round_s(rest) if rest else 0.0)

    def promised_in(self, seconds: float, share: float = 1.0) -> float:
        """Returns how many of `tokens_in` may be promised with this share of the node; the floors take the rest."""
        return share * (1.0 - FLOOR) * self.tokens_in(seconds)

    def beside(self, seconds: float, num_tokens: int, others: Sequence[int]) -> int:
        """Returns the tokens of others that fit into a round of `seconds`, in addition to `num_tokens` of these.

        others: text lengths of the sessions that could join, in the order of joining. Each session adds itself and its
        text to the round with its first token.
        """
        contexts = [0, *accumulate(others)]
        most = range(1, max(0, min(self._most, int(self.tokens_in(seconds))) - num_tokens) + 1)

        def round_s(more: int) -> float:
            joining = min(more, len(others))
            return self._round_s(num_tokens + more, joining, contexts[joining])

        return bisect_right(most, seconds, key=round_s)

    def _round_s(self, num_tokens: int, more_sessions: int = 0, more_context: int = 0) -> float:
        sessions, context = self._num_sessions + more_sessions, self._context + more_context
        return self._longer * (float(self._cost.round_s(num_tokens, sessions, context)) + self._extra_s)
