"""Chooses a replica for a session that its own replica does not serve, by the loads of the others.

A session may come back to a replica where it has been; its caller bounds its redirects.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Literal, TypeAlias

from msgspec.structs import replace

from goodspeed.fleet.replicas import MAX_OWED, Load, Owed, Replica
from goodspeed.slo.admit import admit
from goodspeed.slo.capacity import FIRST_TOKEN_S, Capacity, headroom_s, planned_s
from goodspeed.slo.feasible import Ask, Decoding

STALE_S = 10.0
"""Age in seconds after which a load counts as unknown: reports come every second."""

MARGIN = 1.25
"""A session that could stay moves only if its wait here exceeds this multiple of its wait at the other replica. The
session counts as load there, not here."""

Reason: TypeAlias = Literal["slo", "load", "draining"]
"""Why a session moves: its service level cannot be promised, others are less loaded, or its replica stops."""


def elsewhere(
    own: Replica, others: Sequence[Replica], request: Ask, now: float, *, reason: Reason, target: str = ""
) -> Replica | None:
    """Returns the least loaded replica that may take the session; None: it stays, or no replica may take it.

    request: its deadline is infinity if nothing is promised. target: fingerprint of the session's target; "": any.

    "slo": only replicas whose load fits the request. "load": only replicas where the session waits less by MARGIN, so
    that it is not sent back while both loads stay. "draining": any replica, those of unknown load last. Ties go by the
    order of names, from the next after `own` on.
    """
    able = [one for one in others if one.name != own.name and may_take(one, now, target)]
    able.sort(key=lambda one: (one.name <= own.name, one.name))
    known = [(one, one.load) for one in able if one.load is not None and _is_fresh(one.load, now)]
    if reason == "slo":
        known = [(one, load) for one, load in known if fits(load, request, now)]
    elif reason == "load":
        known = [(one, load) for one, load in known if _is_clearly_better(load, own, request, now)]
    if known:
        return min(known, key=lambda pair: expected_s(pair[1]))[0]
    return able[0] if able and reason == "draining" else None


def may_take(replica: Replica, now: float, target: str = "") -> bool:
    """Returns whether the replica is not draining, has the same target, and has room; unknown facts count as true."""
    load = replica.load
    if load is None:
        return True
    if load.is_draining or (target and load.target_fingerprint != target):
        return False
    return not _is_fresh(load, now) or load.num_sessions < load.max_sessions


def expected_s(load: Load, more_sessions: int = 1, more_context: int = 0) -> float:
    """Returns the seconds per token that a session would wait: round time x (1 + share of taken sessions).

    more_sessions, more_context: added to the load, by default the session itself.

    The fuller the replica, the likelier a session waits for admission or is preempted and prefilled again. The round
    time is the modelled one, with a token of each session, or the measured one (with prompts and drafts) if longer.
    """
    number, context = max(0, load.num_sessions + more_sessions), max(0, load.context_tokens + more_context)
    round_s = max(load.round_s, load.round_model.round_s(min(number, load.max_round_tokens), number, context))
    return round_s * (1.0 + number / max(1, load.max_sessions))


def _is_clearly_better(load: Load, own: Replica, request: Ask, now: float) -> bool:
    """Returns whether the wait here exceeds MARGIN times the wait there, with the session as load there and not
    here."""
    if own.load is None or not _is_fresh(own.load, now):
        return False
    here_s = expected_s(own.load, 0)  # the session is not open here yet
    return MARGIN * expected_s(load, 1, request.prompt_tokens) < here_s


def _is_fresh(load: Load, now: float) -> bool:
    return now - load.told_at <= STALE_S


def fits(load: Load, request: Ask, now: float) -> bool:
    """Returns whether a replica with this load would promise the session its request (SLOs-Serve, 4.2).

    Runs the same admission control on the reported load as the replica runs on its own promises.
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
