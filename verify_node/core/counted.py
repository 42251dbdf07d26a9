"""Which drafts promises count on: with `--guarantee speculative` those of all who have shown some, as in the paper.

A text that drafts may wait for a longer round and still keep its TPOT, and longer rounds carry more. Then a promise
hangs on a draft node: one that leaves, or drafts worse than before, breaks its own. No I/O, no clock, no torch.
"""

from collections.abc import Callable, Iterable
from math import ceil, floor

from goodspeed.admission import Pace
from goodspeed.admission.remote import Remote, fastest
from verify_node.session.session import Session

MOST_DRAFTED = 8
"""Longest draft that is counted on; what comes after is seldom accepted, and less sure."""

COUNTED = 0.8
"""Of the acceptance rate that was shown, what is counted on: means are missed by half of all texts."""

NUM_TIMES = 12
"""Lengths of a round that are looked at before each round."""

RATE_STEP, TRIP_STEP_S, DRAFT_STEP_S = 0.05, 0.005, 0.001
"""Sessions count as alike if their rates and times are, rounded to these, the slower way."""


def counted_on(sessions: Iterable[Session], tokens_in: Callable[[float], float]) -> dict[bytes, Pace]:
    """How each session that has a TPOT decodes in the rounds that leave most for prompts (`remote.fastest`).

    tokens_in: tokens that a round of so many seconds carries. While somebody has shown no drafts, no round is longer
    than that one's TPOT.
    """
    groups: dict[tuple[float, float, float, float], list[bytes]] = {}
    for session in sessions:
        if session.ledger is not None and (tpot_s := session.ledger.slo.tpot_s) is not None:
            groups.setdefault((tpot_s, *_drafting(session)), []).append(session.session_id)
    plan = fastest(
        [_remote(*kind, number=len(own)) for kind, own in groups.items()],
        tokens_in,
        most=MOST_DRAFTED,
        num_times=NUM_TIMES,
    )
    if plan is None:
        return {}
    paces = zip(groups.values(), plan.paces, strict=True)
    return {session_id: pace for own, pace in paces if pace.drafted for session_id in own}


def _drafting(session: Session) -> tuple[float, float, float]:
    """Acceptance rate as far as its client has shown it, and seconds of a round trip and of a drafted token."""
    client = session.client
    shown = min(client.acceptance.value, client.acceptance_bound.most) if client.acceptance_bound.num_tried else 0.0
    trip_s, token_s = session.round_trip_s, client.draft_s_per_token
    return (
        RATE_STEP * floor(COUNTED * shown / RATE_STEP),
        TRIP_STEP_S * ceil(trip_s / TRIP_STEP_S),
        DRAFT_STEP_S * ceil(token_s / DRAFT_STEP_S),
    )


def _remote(tpot_s: float, alpha: float, trip_s: float, token_s: float, *, number: int) -> Remote:
    """Sessions whose drafts are made while a round is under way: a cycle is one round unless they take longer."""
    return Remote(alpha, tpot_s, lambda drafted, round_s: max(round_s, trip_s + drafted * token_s), number)
