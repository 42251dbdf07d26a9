"""The floor of best effort: tokens of each round that promises leave to waiting clients.

A client with waiting best-effort sessions is due FLOOR of its weight's share of the tokens of every round, with its
promised sessions' tokens counted in. Due tokens that a round did not give are the client's shortfall, which the next
rounds must give.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from math import ceil, inf

from goodspeed.engine.paged.pages import PagePool
from goodspeed.slo.capacity import FLOOR
from verify_node.session.session import Session

MOST_SHORT = 2.0
"""Largest shortfall carried over, in tokens, in addition to those due in one round. A client that gets no pages, or
takes fewer tokens than it is due, accumulates no more."""


class Floor:
    """Tracks the shortfall of each client, in tokens."""

    def __init__(self) -> None:
        self._short: dict[str, float] = {}
        self._part = FLOOR  # share of a round's tokens due to all clients that waited in the previous one

    def owed(self, waiting: Sequence[Session], pool: PagePool, room: float) -> dict[bytes, int]:
        """Returns the tokens that the next round owes each session; the client with the largest shortfall goes first.

        waiting: ready best-effort sessions; a client's first ones go first. room: tokens of that round. The total is
        limited to the due share of that round: promises lose no more after long rounds, or where many clients fall
        short at once.
        """
        short, left = dict(self._short), ceil(self._part * room) if room < inf else inf
        owed: dict[bytes, int] = {}
        for session in sorted(waiting, key=lambda one: -self._short.get(one.client.name, 0.0)):
            name = session.client.name
            unread = len(session.tokens) - pool.length(session.session_id)
            if num_tokens := int(min(unread, left, short.get(name, 0.0))):
                owed[session.session_id] = num_tokens
                short[name] -= num_tokens
                left -= num_tokens
        return owed

    def began(self, taken: Mapping[bytes, int], ready: Sequence[Session], promised: Container[bytes]) -> None:
        """Updates shortfalls as a round begins. taken: its tokens by session. ready: sessions that could have been in
        it."""
        clients = {session.session_id: session.client for session in ready}
        weights = {client.name: client.weight for client in clients.values()}
        waiting = {client.name for session_id, client in clients.items() if session_id not in promised}
        each = FLOOR * sum(taken.values()) / sum(weights.values())
        given: Counter[str] = Counter()
        for session_id, num_tokens in taken.items():
            given[clients[session_id].name] += num_tokens
        self._part = FLOOR * sum(weights[name] for name in waiting) / sum(weights.values())
        for name in waiting:
            due = each * weights[name]
            self._short[name] = max(0.0, min(self._short.get(name, 0.0) + due - given[name], MOST_SHORT + due))

    def keep(self, clients: Container[str]) -> None:
        """Drops the shortfalls of all other clients."""
        self._short = {name: short for name, short in self._short.items() if name in clients}
