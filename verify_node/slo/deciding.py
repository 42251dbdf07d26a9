"""Admits deadlines, first those within their client's share by weight.

The rest goes to any client that requests it, beyond its share too. But while another client has an unmet request within
its share, no client is promised more than its own share.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple

from goodspeed.slo.admit import admit
from goodspeed.slo.capacity import FLOOR, Capacity, headroom_s
from goodspeed.slo.feasible import Ask
from verify_node.session.deadline import Deadline
from verify_node.slo.allotting import shortest_s, tpots


class Decision(NamedTuple):
    """The inputs of a decision, in addition to the deadlines."""

    now: float  # when the next round can begin
    rounds: Capacity  # of all sessions that are promised or to be decided
    num_pages: int  # of the KV cache, free or not
    weights: Mapping[str, float]  # of these sessions' clients, by name
    policy: str = "dp"  # of `goodspeed.slo.admit.names()`


def decide(promised: Mapping[bytes, Deadline], new: Sequence[Deadline], by: Decision, share: float = 1.0) -> list[bool]:
    """Decides which new deadlines to promise in addition to the promised ones; returns one flag per new deadline.

    share: part of the node's rounds and pages that may be used, above 0 and at most 1. A client's n-th promise is worth
    its weight / n: the marginal utility of a logarithm, so that promises are spread over clients.
    """
    shortest = shortest_s(promised.values(), by.rounds.least_s)  # without new TPOTs: these may be declined
    waiting = [one for one in promised.values() if one.prompt_left > 1]  # the others lack at most a held final token
    asks = [one.request(by.now, headroom_s(shortest)) for one in waiting]
    num_promised = Counter(one.client for one in promised.values())
    for one in new:
        num_promised[one.client] += 1
        value = by.weights[one.client] / num_promised[one.client]
        early_s = headroom_s(shortest, inf if one.slo.tpot_s is None else one.slo.tpot_s)
        asks.append(Ask(one.due - by.now - early_s, one.prompt_left, one.slo.tpot_s, one.pages, value))
    reserved = sum(one.pages for one in promised.values())
    kept = admit(
        asks,
        decoding=tpots((one for one in promised.values() if one.prompt_left <= 1), by.now),
        tokens_in=lambda seconds: by.rounds.promised_in(seconds, share),
        pages=max(0, int(share * (1.0 - FLOOR) * by.num_pages) - reserved),
        policy=by.policy,
    )
    return kept[len(waiting) :]


def admit_fairly(
    promised: dict[bytes, Deadline], new: Sequence[Deadline], waiting: Collection[str], by: Decision
) -> None:
    """Decides which new deadlines to promise, and adds these to `promised`, by session id.

    waiting: names of clients with further deadlines, which are decided later.
    """
    within = _within_shares(promised, new, by)
    first = [one for one in new if one.session_id in within]
    _admit(promised, first, by)
    entitled = {one.client for one in first}
    unmet = {one.client for one in first if one.session_id not in promised} | entitled.intersection(waiting)
    rest = [one for one in new if one.session_id not in within and not unmet - {one.client}]
    _admit(promised, rest, by)


def _admit(promised: dict[bytes, Deadline], new: Sequence[Deadline], by: Decision) -> None:
    if new:
        kept = decide(promised, new, by)
        promised |= {one.session_id: one for one, is_kept in zip(new, kept, strict=True) if is_kept}


def _within_shares(promised: Mapping[bytes, Deadline], new: Sequence[Deadline], by: Decision) -> set[bytes]:
    """Returns the session ids of the deadlines that their client's own share of the node can meet beside its promises.

    Empty if a single client requests deadlines, as there is no one to share with.
    """
    clients = {one.client for one in new}
    if len(clients) < 2:
        return set()
    found: set[bytes] = set()
    by_client: dict[str, dict[bytes, Deadline]] = {name: {} for name in clients}
    for key, one in promised.items():
        if one.client in by_client:
            by_client[one.client][key] = one
    for name, held in by_client.items():
        own = [one for one in new if one.client == name]
        kept = decide(held, own, by, by.weights[name] / sum(by.weights.values()))
        found |= {one.session_id for one, is_kept in zip(own, kept, strict=True) if is_kept}
    return found
