"""When the next round starts, and whom it waits for until then.

Two planners differ in that: `barrier` is the paper's discrete time, `continuous` waits for a draft only while that
costs the others less than it saves, and never longer than a small linger. What is in the round is for `packing`.
Knows nothing about tensors, sockets or policies.
"""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from goodspeed.fair.registry import Registry
from verify_node.packing.round import RoundLimits
from verify_node.session.session import Session

LATE = 0.25
"""Share of the linger by which a draft may come later than expected."""

OFFER_SHARE = 0.25
"""Share of a round's time by which offers may hold up a round. It bounds what is lost where they do not come."""

_due_at = attrgetter("due_at")


class Start(NamedTuple):
    """When the next round may start, and for whom it waits till then."""

    at: float  # seconds, the core's clock; infinity while somebody has to be waited for
    whom: Session | None = None  # until its draft arrives, no other arrival can start the round earlier


class Hope(NamedTuple):
    """A session that is ready, and whose draft node may be about to offer something for it."""

    session: Session
    num_expected: float  # tokens that are accepted more if it is waited for
    of_model: bool = False  # its draft model has to offer anew; else its draft node has a verdict to answer

    @property
    def due_at(self) -> float:
        """When the offer should be there."""
        return self.session.model_due_at if self.of_model else self.session.answer_due_at


class Planner(Protocol):
    """Decides when there is a round, and what is in it."""

    def start(
        self,
        awaited: Sequence[Session],
        ready: Sequence[Session],
        limits: RoundLimits,
        round_s: float,
        hopes: Sequence[Hope] = (),
    ) -> Start:
        """awaited: those whose drafts are on their way; round_s: how long a round takes, 0 if that is not known.

        hopes: those of `ready` whose offers are on their way.
        """
        ...


_registry: Registry[Planner] = Registry("rounds", "rounds {name!r} are unknown")
names = _registry.names
create = _registry.create


@_registry.register("continuous")
class Continuous:
    """Starts with the sessions that are ready; waits for what is on its way if that pays.

    A draft is waited for at most for the linger. An offer is waited for at most for a share of a round's time, since
    its session goes on without it.
    """

    def start(
        self,
        awaited: Sequence[Session],
        ready: Sequence[Session],
        limits: RoundLimits,
        round_s: float,
        hopes: Sequence[Hope] = (),
    ) -> Start:
        if not ready:
            return Start(math.inf)
        first = min(session.ready_since for session in ready)
        late_s = LATE * limits.linger_s
        last, last_offer = first + limits.linger_s, first + max(limits.linger_s, OFFER_SHARE * round_s)
        coming = [_Arrival(session.due_at, last, session, round_s, 1) for session in awaited]
        coming += [_Arrival(hope.due_at, last_offer, hope.session, hope.num_expected * round_s, 0) for hope in hopes]
        soon = [arrival for arrival in coming if first - late_s < arrival.due_at <= arrival.last]
        latest = _worth_waiting_for(sorted(soon, key=_due_at), len(ready), first)
        if latest is None:
            return Start(first)
        return Start(min(max(latest.due_at, first) + late_s, latest.last), latest.session)


class _Arrival(NamedTuple):
    """Something that is on its way to a session."""

    due_at: float
    last: float  # it is waited for no longer
    session: Session
    gain_s: float  # what its session gains in time if the round waits for it
    num_more: int  # sessions that wait with the others once it is there: 0 if it is ready already


def _worth_waiting_for(soon: Sequence[_Arrival], num_ready: int, first: float) -> _Arrival | None:
    """The last of `soon` (sorted by due time) for which waiting pays; None if it pays for none.

    A draft that just misses a round loses that round's time, and an offer that of the tokens that it brings. A wait
    costs every session that is ready already as much.
    """
    found: _Arrival | None = None
    best, gained, waited_until, num_waiting = 0.0, 0.0, first, num_ready
    for arrival in soon:
        at = max(arrival.due_at, first)
        gained += arrival.gain_s - num_waiting * (at - waited_until)
        waited_until, num_waiting = at, num_waiting + arrival.num_more
        if gained > best:
            best, found = gained, arrival
    return found


@_registry.register("barrier")
class Barrier:
    """Everybody who is drafting is waited for, as in the paper ("until the batch is fully assembled").

    A draft that is late by far is no longer expected (`late_drafts.py`).
    """

    def start(
        self,
        awaited: Sequence[Session],
        ready: Sequence[Session],
        limits: RoundLimits,
        round_s: float,
        hopes: Sequence[Hope] = (),
    ) -> Start:
        if not ready:
            return Start(math.inf)
        if awaited:
            return Start(math.inf, awaited[-1])
        return Start(min(session.ready_since for session in ready))
