"""What promises ask of the rounds to come, in the words of `goodspeed/admission`.

Rounds end where they end, not where a deadline is: so each promise is planned a round earlier than it is due. Knows
nothing about requests that are not promised yet.
"""

from collections.abc import Iterable
from math import inf

from goodspeed.admission import Ask
from verify_node.admission.book import Promise

HEADROOM_S = 0.005
"""So much earlier than it is due a first token is planned, beside a round, as in the code of SLOs-Serve's authors."""

LATE_S = 1.0
"""A prompt that is late already is planned to be read in so many seconds."""

CATCHING_UP = 0.8
"""A session behind its promise is served as if its TPOT were this share of it, until it has caught up."""


def pace_s(promise: Promise, now: float) -> float | None:
    """The TPOT at which a session is to be served from now on; None without one."""
    if promise.tpot_s is None:
        return None
    return promise.tpot_s * (CATCHING_UP if promise.due <= now else 1.0)


def paces(promises: Iterable[Promise], now: float) -> list[float]:
    """Those of several sessions, as far as they have one."""
    found = (pace_s(one, now) for one in promises)
    return [pace for pace in found if pace is not None]


def headroom_s(promises: Iterable[Promise], least_round_s: float, tpots: Iterable[float] = ()) -> float:
    """How much earlier than it is due a first token is planned: the shortest round, and a little.

    A round that is under way ends within the tightest TPOT, so that is the most. least_round_s: seconds of a round that
    has a token of each session; infinity where that is not known. tpots: of those who ask for a promise.
    """
    round_s = min([least_round_s, *tpots, *(one.tpot_s for one in promises if one.tpot_s is not None)])
    return HEADROOM_S + (round_s if round_s < inf else 0.0)


def planned_s(left_s: float, early_s: float) -> float:
    """When a first token is planned that is due so many seconds from now: so much earlier, or as early as can be."""
    return left_s - early_s if left_s >= 2 * early_s else min(left_s, early_s)


def ask(promise: Promise, now: float, early_s: float) -> Ask:
    """What is left of a promised prompt. What is late is planned for soon: it must not stop all other promises."""
    left_s = promise.due - now
    due_s = planned_s(left_s, early_s) if left_s > 0.0 else max(early_s, LATE_S)
    return Ask(due_s, promise.prompt_left, promise.tpot_s, promised=True)
