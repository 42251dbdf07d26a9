"""Sessions in any phase, whose text is partly in a pool, with drafts of a given length; and rounds of these."""

from functools import partial

from goodspeed.fair.round_time import Linear
from goodspeed.wire.messages import Draft
from tests.fakes import make_open
from tests.verify_node.phases import new_session, put
from verify_node.scheduler.drafts import of_draft
from verify_node.scheduler.orders.fcfs import Fcfs
from verify_node.scheduler.pack import plan
from verify_node.scheduler.preempt import Preemption
from verify_node.scheduler.round import RoundLimits
from verify_node.slo.allotting import NO_PROMISES


def make_session(number, *, prompt=3, cached=None, draft=None, waits=False, ready_since=0.0, pool=None):
    """Session `number`, the number-th to be opened; `draft` is a length. waits: for a complete draft."""
    session = new_session(make_open(number, prompt=tuple(range(1, prompt + 1))), admitted=number)
    session.ready_since = ready_since
    if cached is not None:
        pool.extend(session.session_id, cached)
    if draft is not None or waits:
        made = None if draft is None else Draft(session.session_id, 1, prompt, (1,) * draft, complete=True)
        put(session, draft or 3, made, waits=waits)
    return session


def by_arrival(pool):
    """Preempts whoever came last."""
    return partial(Preemption(Fcfs(), Linear(), pool).resolve, now=9.0)


def pack(
    sessions, pool, budget=8, max_round_tokens=32, *, ready=None, drafted=None, allotment=NO_PROMISES, resolve=None
):
    """The first round; ready: all of the sessions unless it says who. drafted: all that they have."""
    ready = sessions if ready is None else ready
    drafted = {session.session_id: of_draft(session) for session in ready} if drafted is None else drafted
    limits = RoundLimits(budget, max_round_tokens)
    return plan(1, sessions, ready, limits, pool, drafted, resolve or by_arrival(pool), allotment)
