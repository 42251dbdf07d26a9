"""What the next round owes to promises: how many tokens it may carry, and for whom. Knows nothing about its making.

Rounds are as long as the tightest promise allows (SLOs-Serve, Alg. 2). Each session that decodes has a token of the
round; what is left is for prompts, of which what is due first goes first, and what is late already goes last: else one
late prompt would make everybody late. The last token of a promised prompt is held: with it the session begins to
decode, and its TPOT begins to count for whoever reads.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from goodspeed.admission import can_keep
from goodspeed.admission.headroom import headroom_s
from verify_node.admission.book import Book, Promise
from verify_node.admission.owing import NOBODY, CountedOn, ask, due, pace_of, paces, shortest_s

AHEAD = 3.0
"""Most TPOTs of the tightest promise that a round may take, however far all are ahead: readers see a gap that long."""

MAX_LOOKS = 8
"""Prompts of which it is looked at in one round whether they may be read to their end, at 0.1 ms each."""

NO_FLOOR: Mapping[bytes, int] = {}
"""Nobody waits with best effort."""


def no_floor(room: float) -> Mapping[bytes, int]:
    """Keeps nothing of a round free."""
    return NO_FLOOR


class Allotment(NamedTuple):
    """What a round is to keep to."""

    round_tokens: int | None  # that it may carry at most; None: no promise bounds it
    prefill: dict[bytes, int]  # of these, each promised prompt's: none, where there is no room or its last one is held
    rank: tuple[bytes, ...]  # who enters first: those who decode, then prompts, each by what is due first
    reserved: frozenset[bytes]  # sessions whose memory is never taken: all that are promised something
    drafted: int = 0  # tokens of drafts that promises count on
    floor: Mapping[bytes, int] = (
        NO_FLOOR  # tokens that stay free for sessions of best effort, the first to be served first
    )


def allot(
    book: Book,
    now: float,
    *,
    tokens_in: Callable[[float], float],
    least_round_s: float = inf,
    promised_in: Callable[[float], float] | None = None,
    counted_on: CountedOn = NOBODY,
    beside: Callable[[float, int], int] | None = None,
    floor: Callable[[float], Mapping[bytes, int]] = no_floor,
) -> Allotment:
    """What the round that begins now is to keep to, so that the promises are kept; the book stays as it is.

    tokens_in: tokens that a round of so many seconds carries; it falls nowhere. least_round_s: as `shortest_s` has it.
    promised_in: those of them that may be promised; None: all. counted_on: how sessions decode whose drafts are counted
    on. beside: tokens of best effort, and of drafts, that a round of so many seconds has room for beside so many
    promised ones; None: what `tokens_in` leaves. floor: tokens of sessions of best effort that a round of so many
    has in any case, even if promises are late by that. Absent sessions take no part.
    """
    present = sorted((one for one in book if one.absent_since is None), key=lambda one: one.due)
    decoding = [one for one in present if one.is_decoding]
    prompts = sorted((one for one in present if not one.is_decoding), key=lambda one: (one.due <= now, one.due))
    round_s = _round_s(present, decoding, now, tokens_in, counted_on)
    room = inf if round_s == inf else tokens_in(round_s)
    drafted = sum(counted_on[one.session_id].drafted for one in decoding if one.session_id in counted_on)
    kept_free = floor(room)
    num_kept = sum(kept_free.values())
    left = room - len(decoding) - drafted - num_kept
    held = _held(decoding, prompts, now, round_s, left, promised_in or tokens_in, least_round_s, counted_on)
    prefill = _prefill(prompts, held, left)
    round_tokens = None if room == inf else int(room)
    if round_tokens is not None and beside is not None:
        own = min(round_tokens, len(decoding) + drafted + sum(prefill.values()))
        round_tokens = own + max(num_kept, beside(round_s, own))
    return Allotment(
        round_tokens,
        prefill,
        tuple(one.session_id for one in (*decoding, *prompts)),
        frozenset(one.session_id for one in book),
        drafted,
        kept_free,
    )


def _round_s(
    present: Sequence[Promise],
    decoding: Sequence[Promise],
    now: float,
    tokens_in: Callable[[float], float],
    counted_on: CountedOn,
) -> float:
    """How long the round may take for all to be on time at its end who still can be; infinity for no bound.

    Whoever is ahead can wait for longer than a TPOT, and the fewer rounds there are, the more prompts they carry. Who
    is late is served at its pace. A round too short for a token of each who decodes helps nobody: whom only that would
    keep on time is late already.
    """
    tightest_s = min((pace.round_s for one in decoding if (pace := pace_of(one, counted_on))), default=inf)
    on_time = [due(one, counted_on) - now for one in present]
    late = [pace.round_s for pace in paces((one for one in decoding if one.due <= now), counted_on, now)]
    left = sorted(seconds for seconds in (*on_time, *late, AHEAD * tightest_s) if 0.0 < seconds < inf)
    first = bisect_left(left, len(decoding) + 1, key=lambda seconds: int(tokens_in(seconds)))
    soonest_s = left[first] if first < len(left) else inf
    return min(soonest_s, tightest_s) if first else soonest_s  # somebody will be late: nobody is to wait for longer


def _held(
    decoding: Sequence[Promise],
    prompts: Sequence[Promise],
    now: float,
    round_s: float,
    room: float,
    tokens_in: Callable[[float], float],
    least_round_s: float,
    counted_on: CountedOn,
) -> set[bytes]:
    """Sessions whose last prompt token waits: they could not decode from now on, and it is not due yet.

    It waits until one TPOT before it is due at most, and never when the round after this one could be too late.
    """
    early_s = headroom_s(shortest_s((*decoding, *prompts), least_round_s))
    owed = {one.session_id: ask(one, now, early_s, counted_on) for one in prompts if one.due > now}
    pace = paces(decoding, counted_on, now)
    held: set[bytes] = set()
    num_looks = 0
    for one, read_before in zip(prompts, accumulate((one.prompt_left for one in prompts), initial=0), strict=False):
        if read_before + one.prompt_left > room:
            break  # it is not read to its end in this round, nor is who comes after it
        if one.tpot_s is None or one.num_delivered or one.due - now <= max(one.tpot_s, 2.0 * round_s):
            continue
        if not held and num_looks < MAX_LOOKS:
            num_looks += 1
            others = [other for session_id, other in owed.items() if session_id != one.session_id]
            own = pace_of(one, counted_on)
            joined = pace if own is None else [*pace, own]
            if can_keep(others, decoding=joined, tokens_in=tokens_in):
                pace = joined
                owed.pop(one.session_id, None)
                continue
        held.add(one.session_id)
    return held


def _prefill(prompts: Sequence[Promise], held: Container[bytes], room: float) -> dict[bytes, int]:
    """Tokens of each promised prompt, in this order."""
    found: dict[bytes, int] = {}
    for one in prompts:
        found[one.session_id] = int(max(0, min(one.prompt_left - (one.session_id in held), room)))
        room -= found[one.session_id]
    return found
