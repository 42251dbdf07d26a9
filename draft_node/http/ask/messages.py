"""Translates a body of `/v1/messages` to a chat request: its blocks become one message, each tool's result another."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from draft_node.http.ask.body import chat_request
from draft_node.http.schema.chat import ChatRequest
from draft_node.http.schema.messages import (
    Block,
    Compaction,
    CountRequest,
    CustomTool,
    Document,
    InputText,
    MessagesRequest,
    OutputConfig,
    SearchResult,
    Thought,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from draft_node.http.schema.parts import Unseen, content_of, text_of
from draft_node.service.chat_forms import ChatForms

ASKED = (InputText, Unseen, Document, SearchResult)


def _messages(request: CountRequest) -> Iterator[dict[str, Any]]:
    if request.system:
        yield {"role": "system", "content": text_of(request.system)}
    for message in request.messages:
        if message.role == "assistant":
            yield _answer(message.blocks)
            continue
        for is_result, run in groupby(message.blocks, lambda block: isinstance(block, ToolResult)):
            if is_result:
                yield from (_result(block) for block in run if isinstance(block, ToolResult))
            elif shown := [block for block in run if isinstance(block, ASKED)]:
                yield {"role": message.role, "content": content_of(shown)}


def _result(block: ToolResult) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)}


def _answer(blocks: Sequence[Block]) -> dict[str, Any]:
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": json.dumps(one.input)}}
        for one in blocks
        if isinstance(one, ToolUse)
    ]
    thought = "".join(one.thinking for one in blocks if isinstance(one, Thought))
    said = text_of(block for block in blocks if isinstance(block, InputText | Compaction))
    return {"role": "assistant", "content": said, "reasoning_content": thought, "tool_calls": calls}


CHOICES: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}

NAMES = (
    (
        r"This model's maximum context length is (\d+) tokens, but the messages have (\d+) tokens( at least)?.*",
        lambda found: f"prompt is too long: {found[2]} tokens > {found[1]} maximum{' (or more)' * bool(found[3])}",
    ),
    (r"\bmessages(\.\d+(\.\w+)*)?", "messages"),
    (r"\bmax_completion_tokens\b", "max_tokens"),
    (r"\benable_thinking\b", "thinking"),
    (r"\breasoning_effort\b", "output_config.effort"),
    (r"\bresponse_format(\.json_schema)?", "output_config.format"),
    (r"(?<=\.)function\.parameters\b", "input_schema"),
    (r"(?<=\.)function\.", ""),
)
"""Patterns of a chat request's parameter names, and the names in Anthropic's API."""


def chat_of(request: CountRequest, chats: ChatForms) -> ChatRequest:
    """Returns the chat request for the same text; ApiError, with Anthropic's parameter names, if chats refuse it."""
    choice, config = request.tool_choice or ToolChoice(type="auto"), request.output_config or OutputConfig()
    form = config.format
    asked: dict[str, Any] = {
        "messages": list(_messages(request)),
        "tools": [_tool(tool) for tool in request.own_tools],
        "tool_choice": CHOICES.get(choice.type) or {"type": "function", "function": {"name": choice.name}},
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
        "enable_thinking": _thinks(request, chats),
        "reasoning_effort": config.effort if knows_effort(request, chats) else None,
        "response_format": form and {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.schema_}},
    }
    if isinstance(request, MessagesRequest):
        asked |= {"max_completion_tokens": request.max_tokens, "stop": request.stop_sequences}
    return chat_request(request, asked, NAMES)


def _tool(tool: CustomTool) -> dict[str, Any]:
    shown = {"name": tool.name, "description": tool.description, "strict": tool.strict}
    return {"type": "function", "function": {**shown, "parameters": tool.input_schema}}


def knows_effort(request: CountRequest, chats: ChatForms) -> bool:
    """True if the request's effort, if any, can be shown to the model: else it is ignored."""
    effort = request.output_config.effort if request.output_config is not None else None
    tools = bool(request.own_tools)
    return effort in (None, "none") or bool(chats.switches(tools=tools)) or chats.knows("reasoning_effort", tools=tools)


def _thinks(request: CountRequest, chats: ChatForms) -> bool | None:
    """Returns whether the model is to think; without `thinking` and effort: not if its template can switch it off."""
    if request.thinking is None:
        if request.output_config is not None and request.output_config.effort is not None:
            return None
        return False if chats.switches(tools=bool(request.own_tools)) else None
    return request.thinking.type != "disabled"
