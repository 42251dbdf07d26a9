"""Bounds the next round so that promises are met: its number of tokens, and the sessions that have tokens reserved.

Rounds are as long as the tightest promise allows (SLOs-Serve, Alg. 2). Each decoding session has one token of the
round. The rest is for prompts: the first due go first, and those already late go last, since otherwise one late prompt
would make all late. The final token of a promised prompt is held back: with that token the session begins to decode,
and the reader's TPOT begins to count.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, inf
from typing import NamedTuple

from goodspeed.slo.capacity import Capacity, headroom_s
from goodspeed.slo.feasible import Budget, Course, Decoding
from verify_node.session.deadline import Deadline

CATCHING_UP = 0.8
"""Share of its TPOT with which a session is planned while it is behind its promise."""

MAX_LOOKS = 8
"""Most prompts per round that are tested for whether they may finish prefill, at 0.1 ms each."""

NO_FLOOR: Mapping[bytes, int] = {}
"""No best-effort session waits."""


class Allotment(NamedTuple):
    """Bounds of one round."""

    round_tokens: int | None  # most tokens of the round; None: no promise bounds it
    prefill: dict[bytes, int]  # tokens of each promised prompt; 0: no room, or only its held final token remains
    rank: tuple[bytes, ...]  # order of entry: decoding sessions, then prompts, each by due time
    reserved: frozenset[bytes]  # sessions that are never preempted: all promised ones
    floor: Mapping[bytes, int] = NO_FLOOR  # tokens that stay free for best effort, by session in the order of service
    held: frozenset[bytes] = frozenset()  # sessions whose final prompt token does not enter, whatever is cached

    def room(self, num_ready: int) -> int | None:
        """Returns the drafted tokens that fit beside promised prompts and a token per session; None: unbounded."""
        if self.round_tokens is None:
            return None
        return max(0, self.round_tokens - num_ready - sum(self.prefill.values()))


NO_PROMISES = Allotment(None, {}, (), frozenset())
"""The bounds of a round without promises: none."""


def tpots(decoding: Iterable[Deadline], now: float) -> list[float]:
    """Returns the TPOTs with which decoding sessions are planned from now on; a session that is behind catches up."""
    return [one.slo.tpot_s * (CATCHING_UP if one.due <= now else 1.0) for one in decoding if one.slo.tpot_s is not None]


def shortest_s(promised: Iterable[Deadline], least_round_s: float) -> float:
    """Returns the seconds of the shortest possible round; infinity: no bound.

    A round under way ends within the tightest promised TPOT, so the shortest is no longer than that.
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
    """Bounds the round that begins now, so that promises are met; paused promises take no part.

    others: text lengths of best-effort sessions that could take part, in that order. floor: maps a round's tokens to
    the tokens that best-effort sessions get in any case, even if that makes promises late.
    """
    due = {key: one.due for key, one in promised.items() if one.paused_since is None}
    present = [promised[key] for key in sorted(due, key=due.__getitem__)]
    decoding = [one for one in present if one.is_decoding]
    prompts = sorted((one for one in present if not one.is_decoding), key=lambda one: due[one.session_id] <= now)
    late = [one for one in decoding if due[one.session_id] <= now]  # the first ones
    round_s = _round_s([at - now for at in due.values()], tpots(late, now), decoding, rounds)
    # A round of a late session carries a token, even if it takes longer than that session's TPOT: so some are due.
    room = inf if round_s == inf else max(1.0, rounds.tokens_in(round_s))
    kept_free = floor(room)
    num_kept = sum(kept_free.values())
    left = room - len(decoding) - num_kept
    running = Decoding.of(tpots(decoding, now))
    held = _held(present, running, prompts, now, round_s, left, rounds)
    prefill = _prefill(prompts, held, left)
    round_tokens = None if room == inf else int(room)
    if round_tokens is not None:
        own = min(round_tokens, len(decoding) + sum(prefill.values()))
        num_rows = len(decoding) + sum(one.rows_of(prefill[one.session_id]) for one in prompts)
        round_tokens = own + max(num_kept, rounds.beside(round_s, max(own, ceil(num_rows)), others))
    rank = tuple(one.session_id for one in (*decoding, *prompts))
    return Allotment(round_tokens, prefill, rank, frozenset(promised), kept_free, frozenset(held))


def _round_s(
    due_in: Sequence[float], late_tpots: Sequence[float], decoding: Sequence[Deadline], rounds: Capacity
) -> float:
    """Longest round, in seconds, at whose end all sessions that can still be on time are; infinity: no bound.

    due_in: seconds until each present deadline. late_tpots: TPOTs of the decoding sessions that are late.

    A session that is ahead in its window can wait longer than a TPOT, and fewer rounds carry more prompts. A late
    session is served at its pace. A round too short for a token of each decoding session helps none: a session that
    needs such a round is late already.
    """
    tightest_s = min((one.slo.tpot_s for one in decoding if one.slo.tpot_s is not None), default=inf)
    left = sorted(seconds for seconds in (*due_in, *late_tpots) if 0.0 < seconds < inf)
    first = bisect_left(left, rounds.seconds_for(len(decoding) + 1))
    soonest_s = left[first] if first < len(left) else inf
    return min(soonest_s, tightest_s) if first else soonest_s  # a session will be late: none waits longer than a TPOT


def _held(
    present: Sequence[Deadline],
    running: Decoding,
    prompts: Sequence[Deadline],
    now: float,
    round_s: float,
    room: float,
    rounds: Capacity,
) -> set[bytes]:
    """Sessions whose final prompt token is held back: they could not decode from now on, and the token is not due yet.

    The token is held until one TPOT before it is due at most, and never if the round after this one could be too late.
    """
    early_s = headroom_s(shortest_s(present, rounds.least_s))
    owed = {one.session_id: one.request(now, early_s) for one in prompts if one.due > now}
    held: set[bytes] = set()
    num_looks, budget = 0, Budget(rounds.promised_in)
    for one, read_before in zip(prompts, accumulate((one.rows_left for one in prompts), initial=0.0), strict=False):
        if read_before + one.rows_left > room:
            break  # neither this prompt nor a later one finishes prefill in this round
        tpot_s = one.slo.tpot_s
        if tpot_s is None or one.has_begun or one.due - now <= max(tpot_s, 2.0 * round_s):
            continue
        if not held and num_looks < MAX_LOOKS:
            num_looks += 1
            others = [other for session_id, other in owed.items() if session_id != one.session_id]
            joined = running.with_one(tpot_s)
            if Course(budget, joined).after_all(sorted(others, key=lambda ask: ask.deadline_s)) is not None:
                running = joined
                owed.pop(one.session_id, None)
                continue
        held.add(one.session_id)
    return held


def _prefill(prompts: Sequence[Deadline], held: Container[bytes], room: float) -> dict[bytes, int]:
    """Divides the room, in rows, among promised prompts, in this order; returns tokens by session.

    The first one gets a token also where that takes more rows than there is room: else it would wait for ever.
    """
    found: dict[bytes, int] = {}
    for one in prompts:
        least = 1 if room >= 1.0 and not any(found.values()) else 0
        found[one.session_id] = min(one.prompt_left - (one.session_id in held), max(least, one.tokens_in(room)))
        room -= one.rows_of(found[one.session_id])
    return found
