"""Judges remotely, by a replica's load, whether it would admit a session's deadline (SLOs-Serve, 4.2).

Runs the same admission control on the reported load as the replica runs on its own promises.
"""

from collections.abc import Iterable
from math import inf, isfinite

from msgspec.structs import replace

from goodspeed.fleet.replicas import MAX_OWED, Load, Owed
from goodspeed.slo.admit import admit
from goodspeed.slo.capacity import FIRST_TOKEN_S, Capacity, headroom_s, planned_s
from goodspeed.slo.feasible import Ask, Decoding


def fits(load: Load, request: Ask, now: float) -> bool:
    """Returns whether a replica with this load would promise the session its request.

    Prompts whose deadline passed since the report count as prefilled, so their sessions decode. The planned rounds
    contain no best effort.
    """
    if not load.promises:
        return False
    age_s = max(0.0, now - load.told_at)
    late = [one for one in load.owed if one.deadline_s <= age_s and one.deadline_s > 0.0]
    waiting = [one for one in load.owed if one not in late]
    decoding, rounds = _decoding(load, late), _rounds(load, request)
    shortest_s = min([rounds.least_s, decoding.tightest_s, *(one.tpot_s or inf for one in waiting)])
    asks = [_owed(one, age_s, headroom_s(shortest_s)) for one in waiting]
    early_s = headroom_s(shortest_s, inf if request.tpot_s is None else request.tpot_s)
    asks.append(request._replace(deadline_s=_deadline_s(request) - early_s))
    return admit(asks, decoding=decoding, tokens_in=rounds.promised_in, pages=load.promisable_pages)[-1]


def _decoding(load: Load, late: Iterable[Owed]) -> Decoding:
    tpots = [(pace.tpot_s, pace.num_sessions) for pace in load.paces if pace.num_sessions]
    tpots += [(one.tpot_s, 1) for one in late if one.tpot_s]
    return Decoding(min((tpot_s for tpot_s, _ in tpots), default=inf), sum(number / tpot_s for tpot_s, number in tpots))


def _rounds(load: Load, request: Ask) -> Capacity:
    """Capacity of rounds with the promised sessions and the new one; each text has the mean length of open ones."""
    promised = sum(pace.num_sessions for pace in load.paces) + len(load.owed)
    share = min(1.0, promised / load.num_sessions) if load.num_sessions else 0.0
    context = share * load.context_tokens + request.prompt_tokens
    return Capacity(load.round_model, load.usual_error, load.max_round_tokens, promised + 1, context)


def _owed(one: Owed, age_s: float, early_s: float) -> Ask:
    return Ask(planned_s(one.deadline_s - age_s, early_s), one.prompt_tokens, one.tpot_s or None, promised=True)


def _deadline_s(request: Ask) -> float:
    return request.deadline_s if isfinite(request.deadline_s) else FIRST_TOKEN_S


def with_one_more(load: Load, request: Ask, now: float) -> Load:
    """Returns the load with the session added, so that several sessions are not all sent to the same free capacity."""
    told = replace(
        load,
        num_sessions=load.num_sessions + 1,
        context_tokens=load.context_tokens + request.prompt_tokens,
        free_pages=max(0, load.free_pages - request.pages),
    )
    if request.deadline_s == inf and request.tpot_s is None:
        return told  # it will be promised nothing
    sent = Owed(now - load.told_at + _deadline_s(request), request.prompt_tokens, request.tpot_s, request.pages)
    owed = sorted((*load.owed, sent), key=lambda one: one.deadline_s)
    pages = max(0, load.promisable_pages - request.pages)
    return replace(told, owed=tuple(owed[:MAX_OWED]), promisable_pages=pages)
