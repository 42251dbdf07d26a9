"""How long a draft is waited for, and when a client that let everybody wait in vain is asked for one again.

A session whose draft does not come goes without: the verify node advances it by itself, as at length 0. Its draft, if
it comes after all, is refused by name, and it is opened again. Knows nothing about rounds or messages.
"""

from verify_node.rounds.probes import WAITING_ROUNDS
from verify_node.session.session import Client, Session

MOST_S = 10.0
"""Nothing is waited for any longer. A draft node that is well sends an empty draft after 5 s at the latest."""

LEAST_S = 3.0
"""Time for a message that got lost to be repeated."""

TIMES = 8.0
"""Of what a draft has taken until now, where the last one has just been there."""

MOST_LATE = 16
"""Times in a row after which the time until the next one grows no more."""


def late_at(session: Session, now: float, *, is_warm: bool) -> float:
    """When a draft that is asked for now is late; is_warm: it follows another, so there is nothing to catch up with."""
    if not is_warm:
        return now + MOST_S
    return now + min(MOST_S, max(LEAST_S, TIMES * session.answer_s))


def go_without(session: Session, number: int, now: float) -> None:
    """Its draft is late; each time in a row, its client is asked for another one half as often."""
    client = session.client
    if number >= client.retry_round:
        client.num_late = min(client.num_late + 1, MOST_LATE)
        client.retry_round = number + (WAITING_ROUNDS << client.num_late)
    session.assigned, session.cannot_draft, session.ready_since = 0, True, now


def on_time(client: Client) -> None:
    """A draft came while it was waited for."""
    client.num_late = max(0, client.num_late - 1)
