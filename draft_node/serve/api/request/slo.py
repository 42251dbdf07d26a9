"""Which service level a request asks for, by `goodspeed.slo`, `service_tier` or headers. What cannot be is a 400.

The headers are those of the Kubernetes inference gateway, so that what is behind it needs no other words.
"""

from collections.abc import Mapping
from typing import NamedTuple

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.schemas import ChatRequest, CompletionRequest, Slo
from draft_node.serve.levels import Levels
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import LONGEST_S, SHORTEST_S, Objectives
from goodspeed.wire.fields import Otherwise

NEUTRAL = ("auto", "default")
"""Values of `service_tier` that ask for nothing."""

TTFT, TPOT = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Headers with objectives in milliseconds."""


class Asked(NamedTuple):
    """What a request's texts are to keep, and what becomes of them where that cannot be promised."""

    slo: Objectives | None
    otherwise: Otherwise


def asked(request: ChatRequest | CompletionRequest, levels: Levels, headers: Mapping[str, str]) -> Asked:
    """What the request asks for; the tier called default for one that asks for nothing."""
    slo = request.goodspeed.slo if request.goodspeed is not None else None
    service_tier = request.service_tier if isinstance(request, ChatRequest) else None
    named = service_tier if service_tier not in NEUTRAL else None
    told = [name for name in (TTFT, TPOT) if name in headers]
    ways = ["goodspeed.slo"] * (slo is not None) + ["service_tier"] * (named is not None) + told[:1]
    if len(ways) > 1:
        raise ApiError(400, f"{ways[0]} and {ways[1]} ask for two levels; send one of them", param=ways[1])
    found: Objectives | None
    try:
        if slo is not None:
            found = _of(slo, levels)
        elif told:
            found = levels.allowed(Objectives(_header(headers, TTFT), _header(headers, TPOT)))
        else:
            found = levels.tier(named) if named is not None else levels.default
    except RequestRefused as error:
        raise ApiError(400, f"{ways[0]}: {error.what}", param=ways[0]) from None
    return Asked(found, _otherwise(request, found))


def _otherwise(request: ChatRequest | CompletionRequest, found: Objectives | None) -> Otherwise:
    otherwise = request.goodspeed.otherwise if request.goodspeed is not None else None
    if otherwise is not None and found is None:
        what = "goodspeed.otherwise is for texts that ask for a service level; send goodspeed.slo, too, or leave it out"
        raise ApiError(400, what, param="goodspeed.otherwise")
    return otherwise or "best_effort"


def _of(slo: Slo, levels: Levels) -> Objectives:
    if slo.tier is not None:
        return levels.tier(slo.tier)
    ttft_s, tpot_s = (None if one is None else one / 1000 for one in (slo.ttft_ms, slo.tpot_ms))
    return levels.allowed(Objectives(ttft_s, tpot_s))


def _header(headers: Mapping[str, str], name: str) -> float | None:
    """Seconds; None where the header is not there."""
    if name not in headers:
        return None
    try:
        seconds = float(headers[name][:32]) / 1000
    except ValueError:
        seconds = 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        what = f"the header {name} must be milliseconds from {1000 * SHORTEST_S:g} to {1000 * LONGEST_S:.0f}"
        raise ApiError(400, what, param=name)
    return seconds
