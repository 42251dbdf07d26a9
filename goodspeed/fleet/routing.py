"""Chooses where a session goes that its replica does not serve, by what the others told of themselves.

The caller leaves out replicas where the session has been.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.virtual import fits, with_one_more
from goodspeed.slo.feasible import Ask

__all__ = ["MARGIN", "STALE_S", "Reason", "elsewhere", "expected_s", "fits", "may_take", "with_one_more"]

STALE_S = 10.0
"""What was told longer ago counts as unknown: reports come every second."""

MARGIN = 1.25
"""A session that could stay goes only where it waits by this factor less, also counting itself there and not here."""

Reason: TypeAlias = Literal["slo", "load", "draining"]
"""Why it goes: its level cannot be promised, others have less to do, or its replica stops."""


def elsewhere(
    own: Replica, others: Sequence[Replica], request: Ask, now: float, *, reason: Reason, target: str = ""
) -> Replica | None:
    """Returns the replica with the least to do that may take the session; None: it stays, or there is nobody.

    request: its deadline is infinity where nothing is promised. target: fingerprint of the session's target; "": any.

    "slo": only a replica whose summary fits the request. "load": only one where the session waits less by MARGIN, so it
    is not sent back while both do what they did. "draining": any, and last one whose load is unknown. Equals are taken
    in the order of their names, from the next after `own` on.
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
    """Whether a session may go there at all: it does not stop, has the same target, and room, as far as it is known."""
    load = replica.load
    if load is None:
        return True
    if load.is_draining or (target and load.target_fingerprint != target):
        return False
    return not _is_fresh(load, now) or load.num_sessions < load.max_sessions


def expected_s(load: Load) -> float:
    """What one session more would wait for each token: a round, and of a second one as much as places are taken.

    Round time x (1 + load). A session is in every round as long as there is room for all; the fuller the replica is,
    the likelier it has to wait for another's place, or reads its tokens again. The round is that of the model with a
    token of each session, or the measured one if that is longer, since prompts and drafts are in it too. It rises with
    sessions and their texts.
    """
    return _expected_s(load, 1, 0)


def _expected_s(load: Load, more_sessions: int, more_context: int) -> float:
    number, context = max(0, load.num_sessions + more_sessions), max(0, load.context_tokens + more_context)
    round_s = max(load.round_s, load.round_model.round_s(min(number, load.max_round_tokens), number, context))
    return round_s * (1.0 + number / max(1, load.max_sessions))


def _is_clearly_better(load: Load, own: Replica, request: Ask, now: float) -> bool:
    """Whether the session waits less there by MARGIN, counted there and not here; so it may be counted here or not."""
    if own.load is None or not _is_fresh(own.load, now):
        return False
    here_s = _expected_s(own.load, -1, -request.prompt_tokens)
    return MARGIN * _expected_s(load, 1, request.prompt_tokens) < here_s


def _is_fresh(load: Load, now: float) -> bool:
    return now - load.told_at <= STALE_S
