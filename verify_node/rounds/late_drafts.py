"""How long a draft is waited for.

A session whose draft does not come goes without (`Session.go_without`): the verify node advances it by itself, as at
length 0. Its draft, if it comes after all, is refused by name, and it is opened again. Knows nothing about rounds or
messages.
"""

from verify_node.session.session import Session

MOST_S = 10.0
"""No draft is waited for any longer. A draft node that is well sends an empty draft after 5 s at the latest."""

LEAST_S = 3.0
"""Time for a message that got lost to be repeated."""

TIMES = 8.0
"""A draft is late after this many times its expected time, if the one before it arrived."""


def late_at(session: Session, now: float, *, is_warm: bool) -> float:
    """The time at which a draft that is asked for now is late.

    is_warm: it follows another draft, so its draft model has nothing to catch up with.
    """
    if not is_warm:
        return now + MOST_S
    return now + min(MOST_S, max(LEAST_S, TIMES * session.answer_s))
