"""The floor of best effort: tokens of each round that promises leave to the clients that wait.

A client that waits with sessions of best effort is due FLOOR of its weight's share of the tokens of every round, its
promised sessions' tokens included. What a round did not give it, the client is short of, and the next rounds have to
give.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from math import ceil, inf
from typing import Protocol

from goodspeed.engine.paged.pages import PagePool
from goodspeed.slo.capacity import FLOOR

MOST_SHORT = 2.0
"""Tokens that a client may be short of, beside what one round is to give it: who finds no memory for long, or takes
fewer, saves up no more."""


class Client(Protocol):
    """A session's client."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...


class Waiting(Protocol):
    """A session that is ready for a round."""

    @property
    def session_id(self) -> bytes: ...
    @property
    def client(self) -> Client: ...
    @property
    def tokens(self) -> Sequence[int]: ...


class Floor:
    """Tokens that each client is short of."""

    def __init__(self) -> None:
        self._short: dict[str, float] = {}
        self._part = FLOOR  # of a round's tokens, what is due to all who waited in the last one

    def owed(self, waiting: Sequence[Waiting], pool: PagePool, room: float) -> dict[bytes, int]:
        """Tokens that the next round has to give, by session; first those of the client that is short of most.

        waiting: ready sessions of best effort; the first of a client's go first. room: tokens of that round. In all it
        is what is due of these: promises lose no more where many are short of a token at once, or after long rounds.
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

    def began(self, taken: Mapping[bytes, int], ready: Sequence[Waiting], promised: Container[bytes]) -> None:
        """Notes what a round gives, in tokens by session, and what was due in it. ready: who could have been in it."""
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
        """Forgets what all other clients are short of."""
        self._short = {name: short for name, short in self._short.items() if name in clients}
