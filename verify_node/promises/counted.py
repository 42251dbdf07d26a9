"""Which drafts promises count on: with `--guarantee speculative` those of all who have shown some, as in the paper.

A text that drafts may wait for a longer round and still keep its TPOT, and longer rounds carry more. Then a promise
hangs on a draft node: one that leaves, or drafts worse than before, breaks its own. No I/O, no clock, no torch.
"""

from collections.abc import Callable, Iterable
from math import ceil, floor, log
from typing import NamedTuple

from goodspeed.admission import Pace
from goodspeed.admission.remote import Remote, fastest
from verify_node.session.session import Session

MOST_DRAFTED = 8
"""Longest draft that is counted on; what comes after is seldom accepted, and less sure."""

COUNTED = 0.8
"""Of the acceptance rate that was shown, what is counted on: means are missed by half of all texts."""

NUM_TIMES = 12
"""Lengths of a round that are looked at before each round."""

TPOT_RATIO, RATE_STEP, TRIP_STEP_S, DRAFT_STEP_S = 1.1, 0.05, 0.005, 0.001
"""Sessions count as alike if their TPOTs, rates and times are, rounded to these, the tighter or slower way."""

MAX_KINDS = 32
"""Of more kinds of sessions those with the same TPOT count as the slowest of them: a look takes a millisecond so."""


class Kind(NamedTuple):
    """Sessions that count as alike."""

    tpot_s: float
    alpha: float
    trip_s: float
    token_s: float  # of drafting


def counted_on(sessions: Iterable[Session], tokens_in: Callable[[float], float], budget: int) -> dict[bytes, Pace]:
    """How each session that has a TPOT decodes in the rounds that leave most for prompts (`remote.fastest`).

    tokens_in: tokens that a round of so many seconds carries. budget: drafted tokens that it may have. While somebody
    has shown no drafts, no round is longer than that one's TPOT.
    """
    groups: dict[Kind, list[bytes]] = {}
    for session in sessions:
        if session.ledger is not None and (tpot_s := session.ledger.slo.tpot_s) is not None:
            groups.setdefault(_kind(session, tpot_s), []).append(session.session_id)
    if len(groups) > MAX_KINDS:
        groups = _fewer(groups)
    plan = fastest(
        [_remote(kind, len(own)) for kind, own in groups.items()],
        tokens_in,
        most=MOST_DRAFTED,
        num_times=NUM_TIMES,
        budget=budget,
    )
    if plan is None:
        return {}
    paces = zip(groups.values(), plan.paces, strict=True)
    return {session_id: pace for own, pace in paces if pace.drafted for session_id in own}


def _kind(session: Session, tpot_s: float) -> Kind:
    """What it may do, rounded; its acceptance rate as far as its client has shown it."""
    client = session.client
    shown = min(client.acceptance.value, client.acceptance_bound.most) if client.acceptance_bound.num_tried else 0.0
    return Kind(
        TPOT_RATIO ** floor(log(tpot_s, TPOT_RATIO)),
        RATE_STEP * floor(COUNTED * shown / RATE_STEP),
        TRIP_STEP_S * ceil(session.round_trip_s / TRIP_STEP_S),
        DRAFT_STEP_S * ceil(client.draft_s_per_token / DRAFT_STEP_S),
    )


def _fewer(groups: dict[Kind, list[bytes]]) -> dict[Kind, list[bytes]]:
    """One kind for each TPOT: the slowest of those with it."""
    by_tpot: dict[float, list[Kind]] = {}
    for kind in groups:
        by_tpot.setdefault(kind.tpot_s, []).append(kind)
    return {
        Kind(tpot_s, min(one.alpha for one in own), max(one.trip_s for one in own), max(one.token_s for one in own)): [
            session_id for one in own for session_id in groups[one]
        ]
        for tpot_s, own in by_tpot.items()
    }


def _remote(kind: Kind, number: int) -> Remote:
    """Sessions whose drafts are made while a round is under way: a cycle is one round unless they take longer."""

    def cycle_s(drafted: int, round_s: float) -> float:
        return max(round_s, kind.trip_s + drafted * kind.token_s)

    return Remote(kind.alpha, kind.tpot_s, cycle_s, number)
