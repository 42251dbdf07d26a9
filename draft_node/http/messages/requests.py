"""Schemas of the bodies of `/v1/messages`, and their translation to a chat request for the same text.

A message's blocks become one message of the chat; each tool result becomes a separate message.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from draft_node.http.messages.blocks import (
    Block,
    Compaction,
    Document,
    InputText,
    Message,
    SearchResult,
    Texts,
    Thought,
    ToolChange,
    ToolResult,
    ToolUse,
)
from draft_node.http.messages.tools import AnyTool, CustomTool, OfMessages
from draft_node.http.parts import Unseen, content_of, text_of
from draft_node.http.requests import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Asking,
    ChatRequest,
    Effort,
    Name,
    NumTokens,
    Schema,
    Stop,
    listed,
)
from draft_node.http.strict import refused
from draft_node.http.tools import has_effort, has_switch
from draft_node.http.translation import chat_request
from draft_node.service.chat_forms import ChatForms
from goodspeed.serving.web.errors import NO_THREADS


class ToolChoice(OfMessages):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = Field(default=None, description="of the tool to call, with the type tool")
    disable_parallel_tool_use: bool | None = Field(default=None, description="true: the answer ends after one call")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.name is not None) is not (self.type == "tool"):
            raise refused("name", 'must be given with the type "tool", and only then')
        return self


class Thinking(OfMessages):
    type: Literal["enabled", "adaptive", "between_tools", "disabled"]


class OutputFormat(OfMessages):
    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(OfMessages):
    effort: Effort | None = None
    format: OutputFormat | None = None


class CountRequest(OfMessages):
    """The parameters that a prompt is made of."""

    announcing = "anthropic-beta"

    model: str | None = None
    messages: Annotated[list[Message], listed(MAX_MESSAGES, 1)]
    system: Texts | None = None
    tools: Annotated[list[AnyTool], listed(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(default=None, description="left out: disabled where the model can do without")
    output_config: OutputConfig | None = None

    @model_validator(mode="after")
    def _has_tools_of_its_own(self) -> Self:
        """Refuses a request for tools that are all left out: the model would answer as if it had used them."""
        if self.tools and not any(isinstance(tool, CustomTool) for tool in self.tools):
            what = f"must have one of your own: nothing runs {self.tools[0].type} here; send one, or leave tools out"
            raise refused("tools", what)
        return self

    @cached_property
    def own_tools(self) -> list[CustomTool]:
        """The tools that the model sees: all from the beginning, also those that a later message adds."""
        own = [tool for tool in self.tools or () if isinstance(tool, CustomTool)]
        names = {tool.name for tool in own}
        changes = (block for message in self.messages for block in message.blocks if isinstance(block, ToolChange))
        added = {tool.name: tool for change in changes if (tool := change.definition) and tool.name not in names}
        return own + list(added.values())


class MessagesRequest(CountRequest, Asking):
    max_tokens: NumTokens
    stop_sequences: Annotated[list[Stop], listed(4)] | None = None
    thread: Any = Field(default=None, description="refused: no conversation is kept here")

    @model_validator(mode="after")
    def _keeps_nothing(self) -> Self:
        if self.thread:
            raise refused("thread", "is not supported: no conversation is stored; send the whole one", NO_THREADS)
        return self


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
    return effort in (None, "none") or has_effort(chats, tools=bool(request.own_tools))


def _thinks(request: CountRequest, chats: ChatForms) -> bool | None:
    """Returns whether the model is to think; without `thinking` and effort: not if its template can switch it off."""
    if request.thinking is None:
        if request.output_config is not None and request.output_config.effort is not None:
            return None
        return False if has_switch(chats, tools=bool(request.own_tools)) else None
    return request.thinking.type != "disabled"
