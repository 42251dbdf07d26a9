"""What is kept in reserve when promises are planned: longer rounds, earlier first tokens, and a part for best effort.

Rounds end where they end, not where a deadline is.
"""

from math import inf

HEADROOM_S = 0.005
"""So much earlier than it is due a first token is planned, beside a round, as in the code of SLOs-Serve's authors."""

SURE = 3.0
"""Rounds are planned to take so many times their usual relative error longer than modelled, since a promise that rests
on a mean is broken in every other round."""

FLOOR = 0.25
"""Each client that waits with best effort keeps this part of its weight's share of every round. All floors together are
at most this part of a round, so promises are given for the rest, of rounds and of memory: whoever comes later then
breaks none."""

FIRST_TOKEN_S = 10.0
"""The TTFT of a promised text that asks for none, and of one that was under way when it is opened again."""

LATE_S = 1.0
"""A prompt that is late already is planned to be read in so many seconds."""


def headroom_s(*rounds_s: float) -> float:
    """How much earlier than it is due a first token is planned: the shortest of these rounds, and a little."""
    return HEADROOM_S + (min(rounds_s) if min(rounds_s) < inf else 0.0)


def planned_s(left_s: float, early_s: float) -> float:
    """When a first token is planned that is due so many seconds from now: so much earlier, or as early as can be.

    What is late is planned for soon: it must not stop all other promises.
    """
    if left_s <= 0.0:
        return max(early_s, LATE_S)
    return left_s - early_s if left_s >= 2 * early_s else min(left_s, early_s)
