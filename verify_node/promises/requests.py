"""What sessions ask to be promised, in the words of `verify_node/admission`."""

from collections import Counter
from collections.abc import Iterable

from goodspeed.admission.headroom import FIRST_TOKEN_S
from goodspeed.engine.paged.pages import PagePool
from goodspeed.fleet.virtual import Wish
from verify_node.admission import Request
from verify_node.session.session import Session
from verify_node.slo.ledger import Ledger


def requests_of(
    asking: Iterable[tuple[Session, Ledger]], num_promised: Counter[str], pool: PagePool, now: float
) -> list[Request]:
    """What the sessions ask for. Each promise that a client has makes its next one worth less, as in a logarithm.

    num_promised: promises by client, of those that ask no more.
    """
    found = []
    for session, ledger in asking:
        client = session.client
        num_promised[client.name] += 1
        found.append(_request(session, ledger, pool, client.weight / num_promised[client.name], now))
    return found


def _request(session: Session, ledger: Ledger, pool: PagePool, value: float, now: float) -> Request:
    return Request(
        session.session_id,
        _first_due(session, now),
        len(session.tokens) - pool.length(session.session_id),
        ledger.slo.tpot_s,
        -(-session.limit // pool.page_size),
        value,
    )


def wish_of(session: Session, page_size: int, now: float) -> Wish:
    """What it would ask of another verify node, which has nothing of its text."""
    pages = -(-session.limit // page_size)
    tpot_s = session.ledger.slo.tpot_s if session.ledger is not None else None
    return Wish(len(session.tokens), _first_due(session, now) - now, tpot_s, pages)


def _first_due(session: Session, now: float) -> float:
    """When its first token is due here. A text that was promised none, or goes on, is given some time."""
    ledger = session.ledger
    if ledger is None or ledger.slo.ttft_s is None or ledger.first_at is not None:
        return now + FIRST_TOKEN_S
    return ledger.asked_at + ledger.slo.ttft_s - session.round_trip_s / 2


def may_begin(session: Session, now: float) -> bool:
    """Whether its first token is not there yet, and may still come in time; without a TTFT, in FIRST_TOKEN_S."""
    ledger = session.ledger
    if ledger is None or ledger.first_at is not None:
        return False
    return now < (ledger.asked_at + FIRST_TOKEN_S if ledger.slo.ttft_s is None else _first_due(session, now))
