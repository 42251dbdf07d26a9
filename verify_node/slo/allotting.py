"""Reserves a part of the next round for promises: how many tokens it may carry, and for whom.

Rounds are as long as the tightest promise allows (SLOs-Serve, Alg. 2). Each session that decodes has a token of the
round; what is left is for prompts, of which what is due first goes first, and what is late already goes last: else one
late prompt would make everybody late. The last token of a promised prompt is held: with it the session begins to
decode, and its TPOT begins to count for whoever reads.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from goodspeed.slo.admit import can_keep
from goodspeed.slo.capacity import Capacity, headroom_s
from goodspeed.slo.feasible import Decoding
from verify_node.slo.deadline import Deadline

AHEAD = 3.0
"""Most TPOTs of the tightest promise that a round may take, however far all are ahead: readers see a gap that long."""

CATCHING_UP = 0.8
"""A session that is behind its promise is planned with this share of its TPOT, until it has caught up."""

MAX_LOOKS = 8
"""Prompts of which it is looked at in one round whether they may be read to their end, at 0.1 ms each."""

NO_FLOOR: Mapping[bytes, int] = {}
"""Nobody waits with best effort."""


class Allotment(NamedTuple):
    """Bounds of one round."""

    round_tokens: int | None  # that it may carry at most; None: no promise bounds it
    prefill: dict[bytes, int]  # of these, each promised prompt's: none, where there is no room or its last one is held
    rank: tuple[bytes, ...]  # who enters first: those who decode, then prompts, each by what is due first
    reserved: frozenset[bytes]  # sessions whose memory is never taken: all that are promised something
    floor: Mapping[bytes, int] = NO_FLOOR  # tokens that stay free for best effort, in the order of service


def tpots(decoding: Iterable[Deadline], now: float) -> list[float]:
    """TPOTs with which sessions are to be served from now on, as far as they have one; who is behind catches up."""
    return [one.slo.tpot_s * (CATCHING_UP if one.due <= now else 1.0) for one in decoding if one.slo.tpot_s is not None]


def shortest_s(promised: Iterable[Deadline], least_round_s: float) -> float:
    """Seconds of the shortest round there may be; infinity where nothing bounds it.

    A round that is under way ends within the tightest TPOT of those who are promised one, so it is no longer than that.
    least_round_s: seconds of a round that has a token of each session.
    """
    return min([least_round_s, *(one.slo.tpot_s for one in promised if one.slo.tpot_s is not None)])


def allot(
    promised: Mapping[bytes, Deadline],
    now: float,
    rounds: Capacity,
    others: Sequence[int] = (),
    floor: Callable[[float], Mapping[bytes, int]] = lambda room: NO_FLOOR,
) -> Allotment:
    """Bounds the round that begins now, so that the promises are kept; paused ones take no part.

    others: lengths of the texts of best effort that could take part, in the order in which they would. floor: tokens of
    such sessions that a round of so many has in any case, even if promises are late by that.
    """
    present = sorted((one for one in promised.values() if one.paused_since is None), key=lambda one: one.due)
    decoding = [one for one in present if one.is_decoding]
    prompts = sorted((one for one in present if not one.is_decoding), key=lambda one: (one.due <= now, one.due))
    round_s = _round_s(present, decoding, now, rounds)
    room = inf if round_s == inf else rounds.tokens_in(round_s)
    kept_free = floor(room)
    num_kept = sum(kept_free.values())
    left = room - len(decoding) - num_kept
    prefill = _prefill(prompts, _held(decoding, prompts, now, round_s, left, rounds), left)
    round_tokens = None if room == inf else int(room)
    if round_tokens is not None:
        own = min(round_tokens, len(decoding) + sum(prefill.values()))
        round_tokens = own + max(num_kept, rounds.beside(round_s, own, others))
    rank = tuple(one.session_id for one in (*decoding, *prompts))
    return Allotment(round_tokens, prefill, rank, frozenset(promised), kept_free)


def _round_s(present: Sequence[Deadline], decoding: Sequence[Deadline], now: float, rounds: Capacity) -> float:
    """Seconds that the round may take for all to be on time at its end who still can be; infinity for no bound.

    Whoever is ahead can wait for longer than a TPOT, and the fewer rounds there are, the more prompts they carry. Who
    is late is served at its pace. A round too short for a token of each who decodes helps nobody: whom only that would
    keep on time is late already.
    """
    tightest_s = min((one.slo.tpot_s for one in decoding if one.slo.tpot_s is not None), default=inf)
    late = tpots((one for one in decoding if one.due <= now), now)
    bounds = (*(one.due - now for one in present), *late, AHEAD * tightest_s)
    left = sorted(seconds for seconds in bounds if 0.0 < seconds < inf)
    first = bisect_left(left, len(decoding) + 1, key=lambda seconds: int(rounds.tokens_in(seconds)))
    soonest_s = left[first] if first < len(left) else inf
    return min(soonest_s, tightest_s) if first else soonest_s  # somebody will be late: nobody is to wait for longer


def _held(
    decoding: Sequence[Deadline],
    prompts: Sequence[Deadline],
    now: float,
    round_s: float,
    room: float,
    rounds: Capacity,
) -> set[bytes]:
    """Sessions whose last prompt token waits: they could not decode from now on, and it is not due yet.

    It waits until one TPOT before it is due at most, and never when the round after this one could be too late.
    """
    early_s = headroom_s(shortest_s((*decoding, *prompts), rounds.least_s))
    owed = {one.session_id: one.request(now, early_s) for one in prompts if one.due > now}
    running = Decoding.of(tpots(decoding, now))
    held: set[bytes] = set()
    num_looks = 0
    for one, read_before in zip(prompts, accumulate((one.prompt_left for one in prompts), initial=0), strict=False):
        if read_before + one.prompt_left > room:
            break  # it is not read to its end in this round, nor is who comes after it
        tpot_s = one.slo.tpot_s
        if tpot_s is None or one.num_tokens > one.num_opened or one.due - now <= max(tpot_s, 2.0 * round_s):
            continue
        if not held and num_looks < MAX_LOOKS:
            num_looks += 1
            others = [other for session_id, other in owed.items() if session_id != one.session_id]
            joined = running.with_one(tpot_s)
            if can_keep(others, decoding=joined, tokens_in=rounds.promised_in):
                running = joined
                owed.pop(one.session_id, None)
                continue
        held.add(one.session_id)
    return held


def _prefill(prompts: Sequence[Deadline], held: Container[bytes], room: float) -> dict[bytes, int]:
    """Tokens of each promised prompt, in this order."""
    found: dict[bytes, int] = {}
    for one in prompts:
        found[one.session_id] = int(max(0, min(one.prompt_left - (one.session_id in held), room)))
        room -= found[one.session_id]
    return found
