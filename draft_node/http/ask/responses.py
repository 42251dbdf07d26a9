"""Translates a body of `/v1/responses` to a chat request.

Output items of an earlier response may be sent back unchanged: adjacent reasoning, text and calls of the assistant
become one message.
"""

import json
from collections.abc import Sequence
from typing import Any

from draft_node.http.ask.body import chat_request
from draft_node.http.schema.chat import ChatRequest
from draft_node.http.schema.errors import Names
from draft_node.http.schema.parts import content_of, text_of
from draft_node.http.schema.response_tools import SEARCH, Toolbox, as_arguments
from draft_node.http.schema.responses import (
    AnyItem,
    CallOutput,
    CustomCall,
    FoundTools,
    FunctionCall,
    InputMessage,
    InputReasoning,
    ResponsesRequest,
    SearchCall,
)


def messages_of(items: str | Sequence[AnyItem], instructions: str | None) -> list[dict[str, Any]]:
    """Converts input items to messages of a chat request."""
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    turn: dict[str, Any] = {}  # the assistant's message in progress, the latest in `messages`
    for item in items:
        if (other := _other(item)) is not None:
            messages += other
            turn = {}
        elif grown := _grown(item):
            if not turn or not _continues(turn, item):
                turn = {"role": "assistant"}
                messages.append(turn)
            turn.update({name: turn.get(name, type(value)()) + value for name, value in grown.items()})
    return [{"content": "", **message} for message in messages]  # thinking that was cut has no text after it


def _other(item: AnyItem) -> list[dict[str, Any]] | None:
    """Returns the message of a tool or a user; none for the output of a call that has no id; None for other items."""
    match item:
        case InputMessage() if item.role != "assistant":
            return [{"role": item.role, "content": content_of(item.content)}]
        case CallOutput():
            return [{"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}]
        case FoundTools():
            names = ", ".join(one.function["name"] for one in Toolbox(item.tools).served)
            text = f"Found these tools: {names}" if names else "Found no tools."
            said = {"role": "tool", "tool_call_id": item.call_id, "content": text}
            return [said] if item.call_id is not None else []
    return None


def _continues(turn: dict[str, Any], item: AnyItem) -> bool:
    """True if an assistant's item may join the message so far: reasoning, then text, then calls."""
    is_text = isinstance(item, InputMessage)
    return not isinstance(item, InputReasoning) and not (is_text and turn.keys() & {"tool_calls", "content"})


def _grown(item: AnyItem) -> dict[str, Any]:
    """Returns what an assistant's item adds to its message; nothing for what the model cannot see."""
    match item:
        case InputReasoning() if item.text:
            return {"reasoning_content": item.text}
        case InputMessage():
            return {"content": text_of(item.content)}
        case FunctionCall():
            return _call(item.call_id, item.shown, item.arguments)
        case CustomCall():
            return _call(item.call_id, item.shown, as_arguments(item.input))
        case SearchCall(call_id=str() as call_id, arguments=given):
            return _call(call_id, SEARCH, given if isinstance(given, str) else json.dumps(given or {}))
    return {}


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}


NAMES = (
    (r"the messages have\b", "the input has"),
    (r"\bmessages(\.\d+(\.\w+)*)?", "input"),
    (r"\bmax_completion_tokens\b", "max_output_tokens"),
    (r"\breasoning_effort\b", "reasoning.effort"),
    (r"\bresponse_format(\.json_schema\b(?=\.))?", "text.format"),
    (r"\btool_choice\.allowed_tools\b", "tool_choice"),
    (r"(?<=\.)function\.", ""),
)
"""Patterns of a chat request's parameter names, and the names in responses."""


def names_of(request: ResponsesRequest) -> Names:
    """Returns pairs for `renamed`: a pattern of a chat's parameter names, and the name in this request."""
    return (*request.toolbox.names(), *NAMES)


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """Returns the chat request for the same text; ApiError, with responses' parameter names, if chats refuse it."""
    given = request.text.format if request.text is not None else None
    form = given.model_dump(by_alias=True, exclude_none=True, exclude={"type"}) if given is not None else {}
    asked = {
        "messages": messages_of(request.input, request.instructions),
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "tools": request.toolbox.functions(),
        "tool_choice": request.toolbox.choice(request.tool_choice),
        "parallel_tool_calls": request.parallel_tool_calls,
        "response_format": given and {"type": given.type, **({"json_schema": form} if form else {})},
        "service_tier": request.service_tier,
    }
    return chat_request(request, asked, names_of(request))
