"""The window's rows about service levels: for each tier its open texts, texts behind schedule, and texts in time.

All times are this verify node's; draft nodes report the times that readers saw. Changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from goodspeed.slo.objectives import OTHER
from verify_node.core.core import VerifyCore
from verify_node.core.counts import Judged
from verify_node.session.session import Session

JUDGED_S = 600.0
"""Seconds for which a complete text counts."""

MAX_NAMES = 4
"""Most clients that are named per tier."""


class TierRow(Struct, frozen=True):
    """One tier, or `other` for objectives of no tier."""

    name: str
    num_open: int  # unfinished texts
    num_behind: int  # of these
    behind: tuple[str, ...]  # clients of these texts, at most MAX_NAMES
    num_judged: int  # complete texts of the last ten minutes
    num_attained: int  # of these
    causes: dict[str, int]  # late texts, by the cause that took most of their time
    num_promised: int = 0  # unfinished texts with a promise


def rows(core: VerifyCore, now: float) -> tuple[TierRow, ...]:
    """Returns the rows of all tiers, and of `other` if it has any text."""
    texts: defaultdict[str, list[Session]] = defaultdict(list)
    for session in core.sessions.values():
        if session.deadline is not None and not session.finished:
            texts[session.deadline.slo.tier or OTHER].append(session)
    judged: defaultdict[str, list[Judged]] = defaultdict(list)
    for one in reversed(core.counts.judged):
        if now - one.at > JUDGED_S:
            break
        judged[one.tier].append(one)
    found = tuple(_row(tier, texts[tier], judged[tier], now) for tier in core.register.tier_names)
    return tuple(row for row in found if row.name != OTHER or row.num_open or row.num_judged)


def _row(tier: str, texts: Sequence[Session], judged: Sequence[Judged], now: float) -> TierRow:
    """texts: the tier's unfinished texts. judged: its complete texts of the last ten minutes."""
    late = [session for session in texts if session.deadline is not None and session.deadline.is_behind(now)]
    causes = Counter(one.cause for one in judged if one.cause is not None)
    return TierRow(
        name=tier,
        num_open=len(texts),
        num_behind=len(late),
        behind=tuple(sorted({session.client.name for session in late}))[:MAX_NAMES],
        num_judged=len(judged),
        num_attained=len(judged) - causes.total(),
        causes=dict(causes.most_common()),
        num_promised=sum(bool(session.promised) for session in texts),
    )
