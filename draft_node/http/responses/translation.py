"""A request for a response as a chat request, and a chat's errors in the words of responses."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from draft_node.http.errors import ApiError, of_validation
from draft_node.http.requests import ChatRequest
from draft_node.http.responses.requests import FunctionTool, ResponsesRequest, ToolChoice, foreign, messages_of

ALIKE = ("model", "temperature", "top_p", "top_k", "seed", "parallel_tool_calls", "service_tier", "goodspeed")
"""What has the same name and meaning in both."""

RENAMED = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """The chat request that asks for the same text; ApiError for what chats do not serve, in the request's words."""
    with renamed():
        asked: dict[str, Any] = {name: getattr(request, name) for name in ALIKE}
        asked |= {
            "messages": messages_of(request.input, request.instructions),
            "max_completion_tokens": request.max_output_tokens,
            "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
            "tools": [_tool(tool) for tool in request.tools] if request.tools else None,
            "tool_choice": _choice(request.tool_choice),
            "response_format": _format(request),
        }
        return ChatRequest.model_validate({name: value for name, value in asked.items() if value is not None})


@contextmanager
def renamed() -> Iterator[None]:
    """An error that names a parameter of chats names that of responses instead."""
    try:
        yield
    except ValidationError as error:
        raise _in_own_words(of_validation(error)) from None
    except ApiError as error:
        raise _in_own_words(error) from None


def _in_own_words(error: ApiError) -> ApiError:
    told: Any = error.body["error"]
    param: str = told["param"] or ""
    message: str = told["message"]
    for name, own in RENAMED.items():
        if re.match(rf"{name}\b", param):
            param = own if name == "messages" else param.replace(name, own, 1)
            message = re.sub(rf"\b{name}(\.\d+(\.\w+)*)?\b", own, message)
    param, message = (said.replace("text.format.json_schema.", "text.format.") for said in (param, message))
    message = message.replace("the messages take", "the input takes")
    if param.startswith(("tools.", "tool_choice.")):
        param, message = (said.replace(".function.", ".") for said in (param, message))
    return ApiError(error.status, message, param=param or None, code=told["code"])


def _tool(tool: FunctionTool) -> dict[str, Any]:
    function = {name: getattr(tool, name) for name in ("name", "description", "parameters", "strict")}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(choice: ToolChoice | None) -> object:
    if choice is None:
        return None
    if choice.type != "function":
        foreign(choice, (), "tool_choice", f"the choice {choice.type!r}")
        return choice.type
    if choice.name is None:
        what = "tool_choice.name must be given: the function that is to be called"
        raise ApiError(400, what, param="tool_choice.name", code="missing_parameter")
    return {"type": "function", "function": {"name": choice.name}}


def _format(request: ResponsesRequest) -> dict[str, Any] | None:
    wanted = request.text.format if request.text is not None else None
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        foreign(wanted, (), "text.format", f"a format of the type {wanted.type!r}")
        return {"type": wanted.type}
    if wanted.name is None:
        what = "text.format.name must be given: a format of the type 'json_schema' has one"
        raise ApiError(400, what, param="text.format.name", code="missing_parameter")
    described: dict[str, Any] = {"name": wanted.name, "description": wanted.description, "schema": wanted.schema_}
    described |= {"strict": wanted.strict}
    return {
        "type": "json_schema",
        "json_schema": {name: value for name, value in described.items() if value is not None},
    }
