"""Schemas of the bodies of `/v1/messages`, and their translation to a chat request for the same text.

A message's blocks become one message of the chat; each tool result becomes a separate message.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, Tag, model_validator

from draft_node.http.parts import TextPart, kind_of, text_of
from draft_node.http.requests import (
    MAX_DESCRIPTION_CHARS,
    MAX_ID_CHARS,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Asking,
    ChatRequest,
    Effort,
    Name,
    NumTokens,
    PastName,
    Schema,
    Stop,
    listed,
)
from draft_node.http.strict import Strict, refused
from draft_node.http.tools import has_switch
from draft_node.http.translation import chat_request
from draft_node.parsing.bodies import MAX_DEPTH
from draft_node.service.chat_forms import ChatForms, depth
from goodspeed.serving.web.errors import NO_THREADS

Texts: TypeAlias = str | Annotated[list[TextPart], listed(MAX_PARTS)]
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class ToolUse(Strict):
    type: Literal["tool_use"]
    id: Id
    name: PastName
    input: dict[str, Any]

    @model_validator(mode="after")
    def _is_a_calls(self) -> Self:
        if depth(self.input) > MAX_DEPTH:
            raise refused("input", f"must not have more than {MAX_DEPTH} levels")
        try:
            json.dumps(self.input, allow_nan=False)
        except ValueError:
            raise refused("input", "must not have NaN or Infinity, which are not JSON") from None
        return self


class ToolResult(Strict):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: Texts | None = None


class Thought(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = Field(default=None, description="taken, and not looked at")


Block: TypeAlias = Annotated[
    Annotated[TextPart, Tag("[text]")]
    | Annotated[ToolUse, Tag("[tool_use]")]
    | Annotated[ToolResult, Tag("[tool_result]")]
    | Annotated[Thought, Tag("[thinking]")],
    kind_of(),
]

OF_ROLE = {"user": ("text", "tool_result"), "assistant": ("text", "tool_use", "thinking"), "system": ("text",)}
"""Types of the blocks that messages of a role may have."""


class Message(Strict):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], listed(MAX_PARTS)]

    @property
    def blocks(self) -> Sequence[Block]:
        return [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content

    @model_validator(mode="after")
    def _is_of_its_role(self) -> Self:
        if not self.blocks and self.role != "assistant":  # a model may have said nothing
            raise refused("content", "must not be empty")
        for block in self.blocks:
            if block.type not in OF_ROLE[self.role]:
                raise refused("content", f'must not have blocks of the type "{block.type}" in the role "{self.role}"')
        return self


class CustomTool(Strict):
    type: Literal["custom"] | None = None
    name: Name
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    input_schema: Schema
    strict: bool | None = Field(default=None, description="true: a call's input keeps the schema")


class ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = Field(default=None, description="of the tool to call, with the type tool")
    disable_parallel_tool_use: bool | None = Field(default=None, description="true: the answer ends after one call")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.name is not None) is not (self.type == "tool"):
            raise refused("name", 'must be given with the type "tool", and only then')
        return self


class Thinking(Strict):
    type: Literal["enabled", "adaptive", "disabled"]


class OutputFormat(Strict):
    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(Strict):
    effort: Effort | None = None
    format: OutputFormat | None = None


class CountRequest(Strict):
    """The parameters that a prompt is made of."""

    model: str | None = None
    messages: Annotated[list[Message], listed(MAX_MESSAGES, 1)]
    system: Texts | None = None
    tools: Annotated[list[CustomTool], listed(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(default=None, description="left out: disabled where the model can do without")
    output_config: OutputConfig | None = None


class MessagesRequest(CountRequest, Asking):
    max_tokens: NumTokens
    stop_sequences: Annotated[list[Stop], listed(4)] | None = None
    thread: Any = Field(default=None, description="refused: no conversation is kept here")

    @model_validator(mode="after")
    def _keeps_nothing(self) -> Self:
        if self.thread:
            raise refused("thread", "is not supported: no conversation is stored; send the whole one", NO_THREADS)
        return self


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
            else:
                yield {"role": message.role, "content": text_of(_texts(run))}


def _result(block: ToolResult) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)}


def _answer(blocks: Sequence[Block]) -> dict[str, Any]:
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": json.dumps(one.input)}}
        for one in blocks
        if isinstance(one, ToolUse)
    ]
    thought = "".join(one.thinking for one in blocks if isinstance(one, Thought))
    return {"role": "assistant", "content": text_of(_texts(blocks)), "reasoning_content": thought, "tool_calls": calls}


def _texts(blocks: Iterable[Block]) -> Iterator[TextPart]:
    return (block for block in blocks if isinstance(block, TextPart))


CHOICES: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}

NAMES = (
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
        "tools": [_tool(tool) for tool in request.tools or ()],
        "tool_choice": CHOICES.get(choice.type) or {"type": "function", "function": {"name": choice.name}},
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
        "enable_thinking": _thinks(request, chats),
        "reasoning_effort": config.effort,
        "response_format": form and {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.schema_}},
    }
    if isinstance(request, MessagesRequest):
        asked |= {"max_completion_tokens": request.max_tokens, "stop": request.stop_sequences}
    return chat_request(request, asked, NAMES)


def _tool(tool: CustomTool) -> dict[str, Any]:
    shown = tool.model_dump(exclude={"type", "input_schema"}, exclude_none=True)
    return {"type": "function", "function": {**shown, "parameters": tool.input_schema}}


def _thinks(request: CountRequest, chats: ChatForms) -> bool | None:
    """Returns whether the model is to think; without `thinking` and effort: not if its template can switch it off."""
    if request.thinking is None:
        if request.output_config is not None and request.output_config.effort is not None:
            return None
        return False if has_switch(chats, tools=bool(request.tools)) else None
    return request.thinking.type != "disabled"
