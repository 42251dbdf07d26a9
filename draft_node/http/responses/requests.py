"""Schema of a `/v1/responses` body, and its translation to a chat request for the same text.

Parameters that need state between requests are not supported. Output items of an earlier response may be sent back
unchanged: adjacent reasoning, text and calls of the assistant become one message.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field, Tag

from draft_node.http.parts import kind_of, text_of
from draft_node.http.requests import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Asking,
    ChatRequest,
    Effort,
    Function,
    JsonSchema,
    NamedFunction,
    NumTokens,
    ServiceTier,
    listed,
)
from draft_node.http.strict import Strict, few
from draft_node.http.translation import chat_request, without_type

Mark: TypeAlias = Annotated[str, Field(max_length=512)] | None


class Part(Strict):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = Field(default=None, description="of an earlier response; taken, and not looked at")
    logprobs: list[Any] | None = Field(default=None, description="likewise")


Parts: TypeAlias = Annotated[list[Part], listed(MAX_PARTS)]


class Item(Strict):
    """Members of every item."""

    id: Mark = None
    status: Mark = None


class MessageItem(Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts
    phase: Mark = None


class CallItem(Item):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class OutputItem(Item):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | Parts


class ReasoningItem(Item):
    type: Literal["reasoning"]
    summary: Parts | None = None
    content: str | Parts | None = None


AnyItem: TypeAlias = Annotated[
    Annotated[MessageItem, Tag("[message]")]
    | Annotated[CallItem, Tag("[function_call]")]
    | Annotated[OutputItem, Tag("[function_call_output]")]
    | Annotated[ReasoningItem, Tag("[reasoning]")],
    kind_of("message"),
]


class OfFunction(Strict):
    """Base class with `type`, so that errors in `type` come first."""

    type: Literal["function"]


class FunctionTool(Function, OfFunction):
    """A callable function; other tools are not supported."""


class NamedTool(NamedFunction, OfFunction):
    """The function that the model must call."""


class PlainFormat(Strict):
    type: Literal["text", "json_object"]


class SchemaFormat(JsonSchema):
    type: Literal["json_schema"]


class TextConfig(Strict):
    format: (
        Annotated[
            Annotated[PlainFormat, Tag("[text]")]
            | Annotated[PlainFormat, Tag("[json_object]")]
            | Annotated[SchemaFormat, Tag("[json_schema]")],
            kind_of("text"),
        ]
        | None
    ) = None


class Reasoning(Strict):
    effort: Effort | None = None


class ResponsesRequest(Asking):
    input: str | Annotated[list[AnyItem], listed(MAX_MESSAGES, 1)]
    instructions: str | None = Field(default=None, description="a message of the system before the input")
    max_output_tokens: NumTokens | None = None
    tools: Annotated[list[FunctionTool], listed(MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    service_tier: ServiceTier | None = None
    metadata: Annotated[
        dict[str, Annotated[str, Field(max_length=512)]] | None,
        few(16, r"(?s).{0,64}", "must have names of at most 64 characters"),
    ] = Field(default=None, description="told again, and kept nowhere")
    user: Mark = Field(default=None, description="taken, and kept nowhere")


def messages_of(items: str | Sequence[AnyItem], instructions: str | None) -> list[dict[str, Any]]:
    """Converts input items to messages of a chat request."""
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    turn: dict[str, Any] = {}  # the assistant's message in progress, the latest in `messages`
    for item in items:
        if isinstance(item, OutputItem):
            message = {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
        elif isinstance(item, MessageItem) and item.role != "assistant":
            message = {"role": item.role, "content": text_of(item.content)}
        else:
            if not turn or not _continues(turn, item):
                turn = {"role": "assistant"}
                messages.append(turn)
            _grow(turn, item)
            continue
        messages.append(message)
        turn = {}
    return [{"content": "", **message} for message in messages]  # thinking that was cut has no text after it


def _continues(turn: dict[str, Any], item: Item) -> bool:
    """True if an assistant's item may join the message so far: reasoning, then text, then calls."""
    return isinstance(item, CallItem) or (isinstance(item, MessageItem) and not turn.keys() & {"tool_calls", "content"})


def _grow(turn: dict[str, Any], item: Item) -> None:
    match item:
        case ReasoningItem():
            turn["reasoning_content"] = text_of(item.content) or text_of(item.summary)
        case CallItem():
            function = {"name": item.name, "arguments": item.arguments}
            turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
        case MessageItem():
            turn["content"] = text_of(item.content)


NAMES = (
    (r"the messages have\b", "the input has"),
    (r"\bmessages(\.\d+(\.\w+)*)?", "input"),
    (r"\bmax_completion_tokens\b", "max_output_tokens"),
    (r"\breasoning_effort\b", "reasoning.effort"),
    (r"\bresponse_format(\.json_schema\b(?=\.))?", "text.format"),
    (r"(?<=\.)function\.", ""),
)
"""Patterns of a chat request's parameter names, and the names in responses."""


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """Returns the chat request for the same text; ApiError, with responses' parameter names, if chats refuse it."""
    choice, given = request.tool_choice, request.text.format if request.text is not None else None
    schema = {"type": "json_schema", "json_schema": without_type(given)} if isinstance(given, SchemaFormat) else given
    asked = {
        "messages": messages_of(request.input, request.instructions),
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "tools": [{"type": "function", "function": without_type(tool)} for tool in request.tools or ()],
        "tool_choice": {"type": "function", "function": {"name": choice.name}}
        if isinstance(choice, NamedTool)
        else choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "response_format": schema.model_dump() if isinstance(schema, BaseModel) else schema,
        "service_tier": request.service_tier,
    }
    return chat_request(request, asked, NAMES)
