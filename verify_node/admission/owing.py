"""What promises ask of the rounds to come, in the words of `goodspeed/admission`.

Rounds end where they end, not where a deadline is: so each promise is planned a round earlier than it is due. Knows
nothing about requests that are not promised yet.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import TypeAlias

from goodspeed.admission import Ask, Pace
from verify_node.admission.book import Promise

CountedOn: TypeAlias = Mapping[bytes, Pace]
"""How sessions decode whose drafts are counted on; the others get a token per TPOT."""

NOBODY: CountedOn = {}
"""No promise hangs on a draft."""

HEADROOM_S = 0.005
"""So much earlier than it is due a first token is planned, beside a round, as in the code of SLOs-Serve's authors."""

LATE_S = 1.0
"""A prompt that is late already is planned to be read in so many seconds."""

CATCHING_UP = 0.8
"""A session behind its promise is served as if its TPOT were this share of it, until it has caught up."""


def due(promise: Promise, counted_on: CountedOn) -> float:
    """When a session's next token is due; where drafts are counted on, as much later as the round is to bring more."""
    pace = counted_on.get(promise.session_id)
    if pace is None or promise.tpot_s is None or not promise.is_decoding:
        return promise.due
    return promise.due + max(0.0, pace.round_s - promise.tpot_s)


def pace_of(promise: Promise, counted_on: CountedOn) -> Pace | None:
    """How a session decodes; None where it is promised no rate."""
    return None if promise.tpot_s is None else counted_on.get(promise.session_id) or Pace.plain(promise.tpot_s)


def paces(promises: Iterable[Promise], counted_on: CountedOn, now: float) -> list[Pace]:
    """How sessions are to be served from now on, as far as they have a TPOT; who is behind catches up."""
    found = []
    for one in promises:
        if (pace := pace_of(one, counted_on)) is not None:
            found.append(pace.quicker(CATCHING_UP) if due(one, counted_on) <= now else pace)
    return found


def shortest_s(promises: Iterable[Promise], least_round_s: float) -> float:
    """Seconds of the shortest round there may be; infinity where nothing bounds it.

    A round that is under way ends within the tightest TPOT of those who are promised one, so it is no longer than that.
    least_round_s: seconds of a round that has a token of each session; infinity where that is not known.
    """
    return min([least_round_s, *(one.tpot_s for one in promises if one.tpot_s is not None)])


def headroom_s(*rounds_s: float) -> float:
    """How much earlier than it is due a first token is planned: the shortest of these rounds, and a little."""
    return HEADROOM_S + (min(rounds_s) if min(rounds_s) < inf else 0.0)


def planned_s(left_s: float, early_s: float) -> float:
    """When a first token is planned that is due so many seconds from now: so much earlier, or as early as can be."""
    return left_s - early_s if left_s >= 2 * early_s else min(left_s, early_s)


def ask(promise: Promise, now: float, early_s: float, counted_on: CountedOn) -> Ask:
    """What is left of a promised prompt. What is late is planned for soon: it must not stop all other promises."""
    left_s = promise.due - now
    due_s = planned_s(left_s, early_s) if left_s > 0.0 else max(early_s, LATE_S)
    pace = counted_on.get(promise.session_id)
    return Ask(due_s, promise.prompt_left, promise.tpot_s, promised=True, counted_on=pace)
