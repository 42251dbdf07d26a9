"""Which service level a request asks for, by `goodspeed.slo` or `service_tier`. What cannot be asked for is a 400."""

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.schemas import ChatRequest, CompletionRequest, Slo
from draft_node.serve.levels import Levels
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import Objectives

NEUTRAL = ("auto", "default")
"""Values of `service_tier` that ask for nothing."""


def asked(request: ChatRequest | CompletionRequest, levels: Levels) -> Objectives | None:
    """What the request's texts are to keep; the tier called default for one that asks for nothing."""
    slo = request.goodspeed.slo if request.goodspeed is not None else None
    service_tier = request.service_tier if isinstance(request, ChatRequest) else None
    named = service_tier if service_tier not in NEUTRAL else None
    if slo is not None and named is not None:
        raise ApiError(400, "goodspeed.slo and service_tier ask for two levels; send one of them", param="service_tier")
    try:
        if slo is not None:
            return _of(slo, levels)
        return levels.tier(named) if named is not None else levels.default
    except RequestRefused as error:
        param = "goodspeed.slo" if slo is not None else "service_tier"
        raise ApiError(400, f"{param}: {error.what}", param=param) from None


def _of(slo: Slo, levels: Levels) -> Objectives:
    if slo.tier is not None:
        return levels.tier(slo.tier)
    ttft_s, tpot_s = (None if one is None else one / 1000 for one in (slo.ttft_ms, slo.tpot_ms))
    return levels.allowed(Objectives(ttft_s, tpot_s))
