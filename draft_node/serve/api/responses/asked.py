"""What a response says of its request, and its usage."""

from typing import Any

from draft_node.serve.api.response.responses import Usage
from draft_node.serve.api.responses.bodies import InputDetails, OutputDetails, ResponseBody, ResponseUsage
from draft_node.serve.api.responses.schemas import ResponsesRequest
from draft_node.serve.api.responses.writing import new_id
from draft_node.serve.service import Wanted


def begun_body(request: ResponsesRequest, wanted: Wanted, model: str, now: int) -> ResponseBody:
    """A response without any output, with what its text is sampled by. now: seconds since 1970."""
    choice = request.tool_choice
    return ResponseBody(
        id=new_id("resp"),
        created_at=now,
        status="in_progress",
        model=model,
        output=[],
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        temperature=wanted.sampling.temperature,
        top_p=wanted.sampling.top_p,
        tools=[tool.model_dump() for tool in request.tools or ()],
        tool_choice="auto" if choice is None else choice.type if choice.name is None else choice.model_dump(),
        parallel_tool_calls=request.parallel_tool_calls is not False,
        text=_text(request),
        reasoning={"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        service_tier=request.service_tier,
        metadata=request.metadata or {},
        user=request.user,
    )


def _text(request: ResponsesRequest) -> dict[str, Any]:
    wanted = request.text.format if request.text is not None else None
    described = wanted.model_dump(by_alias=True, exclude_none=True) if wanted is not None else {"type": "text"}
    return {"format": described, "verbosity": "medium"}


def usage_in_response(usage: Usage) -> ResponseUsage:
    """The usage of a chat in the words of a response."""
    details = usage.completion_tokens_details
    cached = usage.prompt_tokens_details
    num_reasoning = details.reasoning_tokens if details is not None else None
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=0 if cached is None else cached.cached_tokens, cache_write_tokens=0
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=num_reasoning or 0),
        total_tokens=usage.total_tokens,
        goodspeed=usage.goodspeed,
    )
