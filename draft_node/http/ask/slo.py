"""The service level of a request, and what is to happen if it cannot be promised."""

from typing import Any

from draft_node.http.schema.chat import ChatRequest, CompletionRequest, Slo
from draft_node.http.schema.errors import ApiError, wrong
from draft_node.service.slo_tiers import SloTiers
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import WINDOW, Objectives
from goodspeed.wire.fields import Otherwise


def asked_slo(request: ChatRequest | CompletionRequest, tiers: SloTiers) -> tuple[Objectives | None, Otherwise]:
    """Returns the texts' service level, and the action if it cannot be promised.

    The level comes from `goodspeed.slo` or `service_tier`; else it is the tier named default, if any.
    """
    own, tier = request.own, request.service_tier if isinstance(request, ChatRequest) else None
    ways: dict[str, Any] = {"goodspeed.slo": own.slo, "service_tier": tier if tier not in ("auto", "default") else None}
    told = [name for name, value in ways.items() if value is not None]
    if len(told) > 1:
        raise ApiError(400, f"{told[0]} and {told[1]} request two service levels; send one of them", param=told[1])
    try:
        found = _level(ways[told[0]], tiers) if told else tiers.default
    except RequestRefused as error:
        raise ApiError(400, f"{told[0]}: {error.what}", param=told[0], code=error.code) from None
    if own.otherwise is not None and found is None:
        raise wrong("goodspeed.otherwise needs a service level; send goodspeed.slo, too, or leave it out")
    return found, own.otherwise or "best_effort"


def _level(asked: str | Slo, tiers: SloTiers) -> Objectives:
    if isinstance(asked, str):
        return tiers.tier(asked)
    given = asked.ttft_ms, asked.tpot_ms, asked.thinking_tpot_ms
    ttft_s, tpot_s, thinking_s = (None if one is None else one / 1000 for one in given)
    window = WINDOW if asked.tpot_window is None else asked.tpot_window
    return tiers.allowed(Objectives(ttft_s, tpot_s, tpot_window=window, thinking_tpot_s=thinking_s))
