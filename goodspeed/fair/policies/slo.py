"""Texts with objectives first, `gradient` with what is left: AdaServe's two phases, for lengths that are assigned.

A text that is owed A tokens by its next round needs the shortest draft that is expected to bring them, with the root:
mu(d) = 1 + alpha + ... + alpha^d >= A. Where time is known no draft is longer than what brings its text the most tokens
per second: if even that is too slow, a longer one makes it later still. Where all wait for the longest draft, too,
nobody's is longer than the longest of `gradient`, since it would make everybody later. The largest needs come first,
each within its weight's share of the budget. Then `gradient` shares out the whole budget under the condition that
nobody gets less than that.
"""

from __future__ import annotations

from collections.abc import Sequence

from goodspeed.fair.policies.base import ClientState, check_budget, register
from goodspeed.fair.policies.gradient import GradientPolicy
from goodspeed.fair.policies.timed import Cost
from goodspeed.fair.shares import shares


@register("slo")
class SloPolicy:
    """What texts are owed (`ClientState.slo`) comes first; without such texts it is `gradient`, with its options."""

    def __init__(self, fairness: float = 1.0, cost: Cost | None = None, barrier: bool = False) -> None:
        self._gradient = GradientPolicy(fairness, cost, barrier)
        self._cost = cost
        self._waits = barrier and cost is not None

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        check_budget(budget)
        floors = least_lengths(clients, budget, self._round_s(clients))
        if not any(floors):
            return self._gradient.allocate(clients, budget)
        if self._waits:
            longest = max(self._gradient.allocate(clients, budget))
            floors = [min(floor, longest) for floor in floors]
        lengths = too_much = floors
        low, given, high = 0, budget, budget  # `gradient` is given the most with which all of it fits
        while low <= high:
            shared = self._gradient.allocate(clients, given)
            raised = [max(pair) for pair in zip(floors, shared, strict=True)]
            if sum(raised) <= budget:
                lengths, low = raised, given + 1
            else:
                too_much, high = raised, given - 1
            given = (low + high + 1) // 2
        return _filled(lengths, too_much, budget)

    def _round_s(self, clients: Sequence[ClientState]) -> float | None:
        """Seconds of a round in which nobody drafts, where time is known."""
        if self._cost is None:
            return None
        context = sum(client.context_len for client in clients)
        return float(self._cost.round_s(len(clients), len(clients), context))


def _filled(lengths: Sequence[int], more: Sequence[int], budget: int) -> list[int]:
    """Lengths with what is left of the budget, up to `more`: among equal clients one token more may move others."""
    filled, left = list(lengths), budget - sum(lengths)
    for index, (length, wanted) in enumerate(zip(lengths, more, strict=True)):
        filled[index] += min(left, max(0, wanted - length))
        left -= filled[index] - length
    return filled


def least_lengths(clients: Sequence[ClientState], budget: int, round_s: float | None = None) -> list[int]:
    """The length that each client needs for what it is owed, as far as its weight's share of the budget reaches.

    round_s: seconds of a round without drafts; None where time is not known.
    """
    rooms = shares({_sharer(index, client): client.weight for index, client in enumerate(clients)}, budget)
    floors, left = [0] * len(clients), budget
    for index in sorted(range(len(clients)), key=lambda index: -(clients[index].slo or 0.0)):
        client, name = clients[index], _sharer(index, clients[index])
        if client.slo is None or client.slo <= 1.0:
            continue
        most = min(rooms[name], client.max_length, left)
        if round_s is not None:
            most = quickest(client, most, round_s)
        floors[index] = shortest(client.slo, client.acceptance_rate, most)
        rooms[name] -= floors[index]
        left -= floors[index]
    return floors


def _sharer(index: int, client: ClientState) -> str:
    """Returns whose share a session takes: its client's, or its own where no client is named."""
    return client.client_id or f"session {index}"


def shortest(owed: float, acceptance_rate: float, most: int) -> int:
    """Length of the shortest draft that is expected to bring `owed` tokens, or `most` if none does."""
    tokens, odds = 1.0, 1.0
    for length in range(most):
        if tokens >= owed:
            return length
        odds *= acceptance_rate
        tokens += odds
    return most


def quickest(client: ClientState, most: int, round_s: float) -> int:
    """Length, at most `most`, of the draft with which the client's text grows fastest; 0 where plain decoding is."""
    tokens, odds = 1.0, 1.0
    best, rate, before = 0, 1.0 / round_s, 0.0
    for length in range(1, most + 1):
        odds *= client.acceptance_rate
        tokens += odds
        longer = tokens / (round_s + client.round_trip_s + length * client.draft_s_per_token)
        if longer < before:
            break  # it falls from here on
        if longer > rate:
            best, rate = length, longer
        before = longer
    return best
