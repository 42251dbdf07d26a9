"""What promises ask of the rounds to come, in the words of `goodspeed/admission`.

Rounds end where they end, not where a deadline is: so each promise is planned a round earlier than it is due. Knows
nothing about requests that are not promised yet.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TypeAlias

from goodspeed.admission import Ask, Pace
from goodspeed.admission.headroom import FIRST_TOKEN_S, planned_s
from verify_node.admission.book import Promise

CountedOn: TypeAlias = Mapping[bytes, Pace]
"""How sessions decode whose drafts are counted on; the others get a token per TPOT."""

NOBODY: CountedOn = {}
"""No promise hangs on a draft."""

CATCHING_UP = 0.8
"""A session that is behind its promise is planned with this share of its TPOT, until it has caught up."""


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


def ask(promise: Promise, now: float, early_s: float, counted_on: CountedOn) -> Ask:
    """What is left of a promised prompt. One that is read again, and whose next token has no time, is given some."""
    pace = counted_on.get(promise.session_id)
    left_s = promise.due - now if isfinite(promise.due) else FIRST_TOKEN_S
    due_s = planned_s(left_s, early_s)
    return Ask(due_s, promise.prompt_left, promise.tpot_s, promised=True, counted_on=pace)
