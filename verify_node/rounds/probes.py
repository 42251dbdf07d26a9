"""Drafts that are asked for to learn, of sessions to which a time-aware policy gives none: they may have become good.

There length 0 is what pays best, for all that is known, and a probe costs what drafts cost where they do not pay; so
probes are rare, and long enough to tell something. Knows nothing about policies or messages.
"""

from goodspeed.fair.estimators import expected_tokens
from verify_node.session.probe import Probe
from verify_node.session.session import Session

LENGTH = 4
WELL = 0.75
"""A probe of which at least this share agrees is followed by the next one at once."""

MOST_IN_A_ROW = 12
"""Probes that may follow each other at once; where drafts have not become good again, few do."""

MOST_COUNTED = 3
"""The wait after a row of probes is proportional to their number, up to this many."""

HOPED = 0.95
"""Nothing is tried that would not pay even with this acceptance rate."""

FEWEST_ROUNDS = 20
SHARE = 0.01
"""So many rounds lie between probes that 1 % of a session's tokens are lost to them, as far as is known, but never
fewer than 20. Where drafts nearly pay they lose next to nothing, and are tried sooner."""

LOST_ROUNDS = 1.5
"""What a probe takes beside drafting, the way there and back and its own round, where there are others: half a round's
waiting, and what its tokens cost all of them together."""

STALE_ROUNDS, STALE_WORTH = 50, 8.0
"""After so many rounds without drafts the estimate counts for so many tokens at most: then a few probes tell."""

WAITING_ROUNDS = 20
"""Fewest rounds before a probe of one token: in barrier rounds, and under policies that do not know time."""

ROUND_TRIPS = 100
"""Under policies that do not know time, a probe of one token also waits for this many round trips of its session."""

SHARE_OF_ALL = 0.02
"""In barrier rounds everybody waits for a probe: a policy that knows time spends at most this share of it on probes."""


def is_due_short(session: Session, number: int, round_s: float, num_waiting: int) -> bool:
    """Whether it is time for a probe of one token. num_waiting: sessions that it keeps waiting, where time counts."""
    if session.zero_since is None or session.max_length < 1 or number < session.client.retry_round:
        return False
    patience_s = ROUND_TRIPS * session.round_trip_s
    if num_waiting:
        away_s = session.round_trip_s + 2 * session.client.draft_s_per_token  # it catches up, then drafts a token
        patience_s = num_waiting * away_s / SHARE_OF_ALL
    return number - session.zero_since >= max(WAITING_ROUNDS, patience_s / round_s if round_s > 0 else 0.0)


def is_due(session: Session, number: int, round_s: float, num_sessions: int) -> bool:
    """Whether a session without drafts has waited long enough to be tried again."""
    if session.probe is Probe.ACCEPTED:
        return session.client.num_probes < MOST_IN_A_ROW
    client = session.client
    if session.zero_since is None or session.max_length < 1 or number < client.retry_round:
        return False
    if not client.draft_s_per_token:  # it never drafted: nothing is known yet
        return number - session.zero_since >= FEWEST_ROUNDS
    away_s = session.round_trip_s + client.draft_s_per_token * (LENGTH + 1)
    others = LOST_ROUNDS * (1.0 - 1.0 / num_sessions)
    rounds = 1.0 + others + away_s / round_s if round_s > 0 else 0.0
    lost = rounds - expected_tokens(session.acceptance.value, LENGTH)
    patience = lost * min(max(1, client.num_probes), MOST_COUNTED) / SHARE
    return number - session.zero_since >= max(FEWEST_ROUNDS, patience)


def begin(session: Session, number: int) -> None:
    """A probe is due: estimates that rest on old drafts are believed less from now on."""
    is_stale = session.zero_since is not None and number - session.zero_since >= STALE_ROUNDS
    session.begin_probe(number, STALE_WORTH if is_stale else None)


def did_well(agreement: float, num_drafted: int) -> bool:
    """Whether so much of a probe agreed that the next one is asked for at once."""
    return agreement >= WELL * num_drafted
