"""A request for a response as a chat request, and a chat's errors in the words of responses."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ValidationError

from draft_node.http.errors import ApiError, of_validation
from draft_node.http.requests import ChatRequest
from draft_node.http.responses.requests import NamedTool, ResponsesRequest, SchemaFormat, messages_of

ALIKE = ("model", "temperature", "top_p", "top_k", "seed", "parallel_tool_calls", "service_tier", "goodspeed")
"""What has the same name and meaning in both."""

RENAMED = (
    (r"\bmessages(\.\d+(\.\w+)*)?", "input"),
    (r"\bmax_completion_tokens\b", "max_output_tokens"),
    (r"\breasoning_effort\b", "reasoning.effort"),
    (r"\bresponse_format(\.json_schema\b(?=\.))?", "text.format"),
    (r"(?<=\.)function\.", ""),
)
"""Names of chats, as patterns, and what they are called in responses."""


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """Returns the chat request that asks for the same text; ApiError, in the request's words, for what chats refuse."""
    choice, given = request.tool_choice, request.text.format if request.text is not None else None
    schema = {"type": "json_schema", "json_schema": _without_type(given)} if isinstance(given, SchemaFormat) else given
    asked: dict[str, Any] = {name: getattr(request, name) for name in ALIKE}
    asked |= {
        "messages": messages_of(request.input, request.instructions),
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "tools": [{"type": "function", "function": _without_type(tool)} for tool in request.tools or ()],
        "tool_choice": {"type": "function", "function": {"name": choice.name}}
        if isinstance(choice, NamedTool)
        else choice,
        "response_format": schema.model_dump() if isinstance(schema, BaseModel) else schema,
    }
    with renamed():
        return ChatRequest.model_validate({name: value for name, value in asked.items() if value is not None})


def _without_type(given: BaseModel) -> dict[str, Any]:
    return given.model_dump(by_alias=True, exclude_none=True, exclude={"type"})


@contextmanager
def renamed() -> Iterator[None]:
    """Has an error that names a parameter of chats name that of responses instead."""
    try:
        yield
    except (ValidationError, ApiError) as caught:
        error = of_validation(caught) if isinstance(caught, ValidationError) else caught
        told: Any = error.body["error"]
        message, param = told["message"].replace("the messages take", "the input takes"), told["param"] or ""
        for name, own in RENAMED:
            message, param = (re.sub(name, own, said) for said in (message, param))
        raise ApiError(error.status, message, param=param or None, code=told["code"]) from None
