"""Derives from the nodes' timeouts how long a user may wait for the next new token.

A wait is counted from the last new token, or from the end of the last blow to the client (a cut, a freeze, a kill) or
to the verify node. From then on nothing is away, but much may have to be noticed:
- what was said during the blow is said again after MAX_RESEND_S at most; it may be refused, and then the session is
  opened anew;
- or the node takes the other side for away (TIMEOUT_S), and its Hello has backed off to MAX_BACKOFF_S;
- the draft model may hang: what it would draft is waited for until it is late (MOST_LATE_S).
Each of these ends in a way there and back or two. Where messages are lost a way there and back fails with probability
1 - (1 - lose)^2, so it is tried until 10^-9 is left of it, and each time costs MAX_RESEND_S.

Where clients wait for each other (`shares_a_fate`) one of them stands for all: somebody gets something new. There a
client that vanished holds what the others need until its lease runs out, and a session whose Close was lost until it is
forgotten (FORGOTTEN_S).
"""

from math import ceil, isfinite, log

from draft_node.core.link import MAX_BACKOFF_S
from draft_node.core.session import MAX_RESEND_S
from experiments.simulation.network import HEADER_BYTES, TOKEN_BYTES
from experiments.simulation.nodes.draft import TIMEOUT_S
from experiments.simulation.settings import Settings
from verify_node.core.sessions import FORGOTTEN_S
from verify_node.core.settings import DEFAULTS
from verify_node.session.draft_state import MOST_LATE_S

NUM_WAYS = 4  # there and back: Hello and Welcome, OpenSession and Verdict, Draft and Verdict, and one that was refused
SURE = 1e-9


def shares_a_fate(settings: Settings) -> bool:
    """True if one client may have to wait for another: for its draft, its memory or its place."""
    tiny = settings.num_pages * settings.page_size < settings.num_clients * settings.num_at_once * settings.context_len
    crowded = settings.max_sessions < settings.num_clients * settings.num_at_once
    return settings.rounds == "barrier" or tiny or crowded


def patience_s(settings: Settings) -> float:
    faults = settings.faults
    seconds = MAX_RESEND_S + TIMEOUT_S + MAX_BACKOFF_S + NUM_WAYS * (_way_s(settings) + 2 * settings.tick_s)
    if faults.hang:
        seconds += MOST_LATE_S + settings.tick_s
    if faults.lose:
        seconds += ceil(log(SURE) / log(1.0 - (1.0 - faults.lose) ** 2)) * MAX_RESEND_S
    if shares_a_fate(settings):
        seconds += DEFAULTS.lease_s + DEFAULTS.heartbeat_s
        if faults.lose or faults.strikes_nodes:
            seconds += FORGOTTEN_S
    return seconds * (1.0 + faults.drift)


def _way_s(settings: Settings) -> float:
    """There and back, with a draft as long as may be, on the client's own line."""
    num_bytes = HEADER_BYTES + max(
        settings.budget * settings.drafted_bytes, TOKEN_BYTES * (settings.prompt_len + settings.max_tokens)
    )
    slowest = min(settings.bytes_per_s)
    sent_s = num_bytes / slowest if isfinite(slowest) else 0.0
    return 2 * (max(settings.latency_s) + settings.faults.jitter_s) + settings.num_at_once * sent_s
