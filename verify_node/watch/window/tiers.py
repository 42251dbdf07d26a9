"""The window's rows about service levels: of each tier how many texts are open and behind, and how many were in time.

As the verify node sees it: what readers saw their draft nodes tell. Changes nothing.
"""

from collections import Counter

from msgspec import Struct

from goodspeed.slo.objectives import OTHER
from verify_node.core.view import View
from verify_node.session.session import Session

JUDGED_S = 600.0
"""Complete texts of so long count."""

MAX_NAMES = 4
"""Most clients that are named."""


class TierRow(Struct, frozen=True):
    """One tier, or `other` for objectives of no tier."""

    name: str
    num_open: int  # texts that go on
    num_behind: int  # of these
    behind: tuple[str, ...]  # clients whose texts they are, at most MAX_NAMES
    num_judged: int  # complete texts of the last ten minutes
    num_attained: int  # of these
    causes: dict[str, int]  # of those that were late, by what took most of their time


def rows(view: View, now: float) -> tuple[TierRow, ...]:
    """Returns the rows of all tiers, and of `other` where there is anything to say of it."""
    found = tuple(_row(view, tier, now) for tier in view.tiers)
    return tuple(row for row in found if row.name != OTHER or row.num_open or row.num_judged)


def _row(view: View, tier: str, now: float) -> TierRow:
    texts = [session for session in view.sessions.values() if not session.finished and _tier(session) == tier]
    late = [session for session in texts if session.ledger is not None and session.ledger.is_behind(now)]
    judged = [one for one in view.counts.judged if one.tier == tier and now - one.at <= JUDGED_S]
    causes = Counter(one.cause for one in judged if one.cause is not None)
    return TierRow(
        name=tier,
        num_open=len(texts),
        num_behind=len(late),
        behind=tuple(sorted({session.client.name for session in late}))[:MAX_NAMES],
        num_judged=len(judged),
        num_attained=len(judged) - causes.total(),
        causes=dict(causes.most_common()),
    )


def _tier(session: Session) -> str | None:
    return None if session.ledger is None else session.ledger.slo.tier or OTHER
