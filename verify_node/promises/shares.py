"""Whose requests are decided on first: those within the weight's share of their client, of what can be promised.

What is left goes to whoever asks, beyond its share too. But while another client asks within its share, and does not
have it yet, nobody is promised more than its own. No I/O, no clock, no torch.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from verify_node.admission import Book, Request, Tier
from verify_node.session.client import Client

Decide: TypeAlias = Callable[[Book, Sequence[Request], float], list[Tier]]
"""What each request gets beside a book of promises, if there were only this share of the node's time and memory."""


def promise_fairly(
    book: Book,
    requests: Sequence[Request],
    clients: Mapping[bytes, Client],
    waiting: Collection[str],
    decide: Decide,
) -> None:
    """Books what can be promised of the requests.

    clients: of the requests and of all promises, by session. waiting: names of those with further requests that wait to
    be decided on again.
    """
    within = _within_shares(book, requests, clients, decide)
    first = [request for request in requests if request.session_id in within]
    _book(book, first, decide)
    entitled = {clients[request.session_id].name for request in first}
    unmet = {clients[request.session_id].name for request in first if request.session_id not in book}
    unmet |= entitled.intersection(waiting)
    rest = [request for request in requests if request.session_id not in within]
    _book(book, [request for request in rest if not unmet - {clients[request.session_id].name}], decide)


def _book(book: Book, requests: Sequence[Request], decide: Decide) -> None:
    if requests:
        for request, tier in zip(requests, decide(book, requests, 1.0), strict=True):
            if tier == "promised":
                book.promise(request)


def _within_shares(
    book: Book, requests: Sequence[Request], clients: Mapping[bytes, Client], decide: Decide
) -> set[bytes]:
    """The requests that could be promised beside their client's promises if the node had only its share for it.

    Where one client asks alone there is nobody to share with.
    """
    asking: dict[str, list[Request]] = {}
    for request in requests:
        asking.setdefault(clients[request.session_id].name, []).append(request)
    if len(asking) < 2:
        return set()
    weights = {client.name: client.weight for client in clients.values()}
    found: set[bytes] = set()
    for name, own in asking.items():
        held = book.only({session_id for session_id, client in clients.items() if client.name == name})
        tiers = decide(held, own, weights[name] / sum(weights.values()))
        found |= {request.session_id for request, tier in zip(own, tiers, strict=True) if tier == "promised"}
    return found
