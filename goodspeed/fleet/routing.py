"""Chooses a replica for a session that its own replica does not serve, by the loads of the others.

The caller omits replicas where the session has been.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.virtual import fits, with_one_more
from goodspeed.slo.feasible import Ask

__all__ = ["MARGIN", "STALE_S", "Reason", "elsewhere", "expected_s", "fits", "may_take", "with_one_more"]

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


def expected_s(load: Load) -> float:
    """Returns the seconds per token that one more session would wait: round time x (1 + share of taken sessions).

    The fuller the replica, the likelier a session waits for admission or is preempted and prefilled again. The round
    time is the modelled one, with a token of each session, or the measured one (with prompts and drafts) if longer.
    """
    return _expected_s(load, 1, 0)


def _expected_s(load: Load, more_sessions: int, more_context: int) -> float:
    number, context = max(0, load.num_sessions + more_sessions), max(0, load.context_tokens + more_context)
    round_s = max(load.round_s, load.round_model.round_s(min(number, load.max_round_tokens), number, context))
    return round_s * (1.0 + number / max(1, load.max_sessions))


def _is_clearly_better(load: Load, own: Replica, request: Ask, now: float) -> bool:
    """Returns whether the wait here exceeds MARGIN times the wait there, with the session as load there and not
    here."""
    if own.load is None or not _is_fresh(own.load, now):
        return False
    here_s = _expected_s(own.load, -1, -request.prompt_tokens)
    return MARGIN * _expected_s(load, 1, request.prompt_tokens) < here_s


def _is_fresh(load: Load, now: float) -> bool:
    return now - load.told_at <= STALE_S
