"""When the next round starts, and whom it waits for until then: the one readiness rule.

A session of the ratio rule is ready once its draft is *complete*, or late (`Session.awaits_draft`). Where rounds are
barriers, as in the paper, that goes for everybody who may draft, and nothing starts before. Otherwise a round waits for
nobody, unless what is about to arrive brings its session more than the wait costs the others: *as long as it pays*.
"""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from verify_node.session.session import Session

SHARE = 0.25
"""Share of a round's time by which drafts may hold up a round. It bounds what is lost where they do not come."""

SLACK_S = 0.0005
"""A draft that is waited for may come later than expected by so much."""

_due_at = attrgetter("due_at")


class Start(NamedTuple):
    """When the next round may start, and for whom it waits till then."""

    at: float  # seconds, the core's clock; infinity while somebody has to be waited for
    whom: Session | None = None  # until its draft arrives, no other arrival can start the round earlier


class Hope(NamedTuple):
    """A session that is ready, and whose draft node may be about to draft something for it."""

    session: Session
    num_expected: float  # tokens that are accepted more if it is waited for
    of_model: bool = False  # its draft model has to draft anew; else its draft node has a verdict to answer

    @property
    def due_at(self) -> float:
        """When the draft should be there."""
        return self.session.model_due_at if self.of_model else self.session.answer_due_at


def start(ready: Sequence[Session], awaited: Sequence[Session], round_s: float, hopes: Sequence[Hope] = ()) -> Start:
    """When a round with the sessions that are ready may start.

    awaited: those without whose complete drafts no round starts. round_s: how long a round takes, 0 if that is not
    known. hopes: those of `ready` whose drafts are on their way.
    """
    if not ready:
        return Start(math.inf)
    if awaited:
        return Start(math.inf, awaited[-1])
    first = min(session.ready_since for session in ready)
    last = first + SHARE * round_s
    soon = [hope for hope in hopes if first - SLACK_S < hope.due_at <= last]
    latest = _worth_waiting_for(sorted(soon, key=_due_at), len(ready), first, round_s)
    return Start(first) if latest is None else Start(min(max(latest.due_at, first) + SLACK_S, last), latest.session)


def _worth_waiting_for(soon: Sequence[Hope], num_ready: int, first: float, round_s: float) -> Hope | None:
    """The last of `soon` (sorted by due time) for which waiting pays; None if it pays for none.

    A draft that just misses a round loses that round's time for each token that it brings. A wait costs every session
    that is ready as much.
    """
    found: Hope | None = None
    best, gained, waited_until = 0.0, 0.0, first
    for hope in soon:
        at = max(hope.due_at, first)
        gained += hope.num_expected * round_s - num_ready * (at - waited_until)
        waited_until = at
        if gained > best:
            best, found = gained, hope
    return found
