"""Sessions in any phase, with drafts put there by hand, and what a choice and a round make of them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from goodspeed.exact.proposal_bytes import certain
from goodspeed.fair.estimators import AcceptanceEstimator
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Draft, Slo
from tests.fakes import make_open
from tests.verify_node.phases import new_client, new_session, put
from verify_node.clients.client import Client
from verify_node.scheduler.choose import Choice, of_draft
from verify_node.scheduler.orders.fcfs import Fcfs
from verify_node.scheduler.pack import plan
from verify_node.scheduler.preempt import Preemption
from verify_node.scheduler.round import RoundLimits
from verify_node.session.deadline import Deadline
from verify_node.session.session import Session
from verify_node.slo.allotting import NO_PROMISES

NOW = 100.0
"""Time at which rounds are packed."""

FREE = Linear(fixed_s=0.01)
DEAR = Linear(fixed_s=0.01, token_s=0.01)


def make_session(number: int = 1, client: Client | None = None, *, prompt: Sequence[int] = (1, 2, 3), **changes: Any):
    """Session `number`, which goes on without a draft, of a client of its own unless another is given."""
    client = client or new_client(f"client-{number}")
    opened = make_open(number, prompt=tuple(prompt), **({"max_tokens": 100} | changes))
    session = new_session(opened, client, AcceptanceEstimator(0.1, client.acceptance.value), admitted=number)
    put(session)
    return session


def drafting(number: int, claimed: Sequence[float] | None, *, tokens=None, source="model", proposal=None, **changes):
    """A session with a draft on its text as it is; claimed: probabilities of its tokens, None: it says none.

    Under the ratio rule each token is certain unless a proposal says otherwise.
    """
    session = make_session(number, **changes)
    if tokens is None:
        tokens = range(1, 1 + (4 if claimed is None else len(claimed)))
    if session.verification == "ratio":
        proposal = proposal or certain(tuple(tokens))
    codes = b"" if claimed is None else probabilities.encode(claimed)
    made_on = len(session.tokens)
    draft = Draft(session.session_id, 1, made_on, tuple(tokens), codes, source, complete=True, proposal=proposal)
    put(session, len(draft.tokens), draft)
    return session


def make_choice(budget=8, max_round_tokens=64, cost=FREE, worth=None, prompt_lookup=None, is_barrier=False, **refined):
    """refined: what else is known of the time of rounds."""
    limits, worth = RoundLimits(budget, max_round_tokens), worth or (lambda client: client.weight)
    return Choice(Refined(cost, **refined), limits, worth, prompt_lookup, is_barrier=is_barrier)


def owe(session: Session, tokens: float) -> Session:
    """Gives a session objectives by which a round that takes no time owes it so many tokens."""
    slo = Objectives(tpot_s=0.1)
    session.deadline = Deadline.open(session.session_id, session.client.name, Slo(slo), slo, 0, 0.0, NOW)
    session.deadline.delivered(1, NOW - tokens * 0.1)
    return session


def lengths(choice: Choice, *sessions: Session, num_prefill: int = 0) -> list[int]:
    """Returns how many drafted tokens of each session are verified."""
    chosen = choice.choose(sessions, 1, NOW, num_prefill=num_prefill)
    return [len(chosen[one.session_id].tokens) if one.session_id in chosen else 0 for one in sessions]


def session_of(number, *, prompt=3, cached=None, draft=None, waits=False, ready_since=0.0, pool=None):
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
