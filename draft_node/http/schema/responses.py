"""Bodies of `/v1/responses`: input items and parameters, and the chat that they stand for. None needs earlier requests.

Output items of an earlier response may be sent back unchanged: adjacent reasoning, text and calls of the assistant
become one message of the chat.
"""

from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationInfo, model_validator

from draft_node.http.schema.chat import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_PAST_NAME_CHARS,
    Asking,
    ChatRequest,
    Effort,
    JsonSchema,
    NumTokens,
    ServiceTier,
    StreamOptions,
    Turns,
    listed,
)
from draft_node.http.schema.content_parts import RefusalText, Unseen, content_of, text_of
from draft_node.http.schema.errors import Names
from draft_node.http.schema.response_tools import DATED, SEARCH, Toolbox, ToolChoice, Tools, shown_name
from draft_node.http.schema.strict import IGNORED, ByType, LeftOut, Strict, few, refused, tell_ignored
from draft_node.service.chat_support import ChatSupport

Mark: TypeAlias = Annotated[str, Field(max_length=512)] | None


class ItemText(Strict):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = None  # of an earlier response; taken, and not looked at
    logprobs: list[Any] | None = None  # likewise


ItemContent: TypeAlias = Annotated[
    list[Annotated[ItemText | RefusalText | Unseen, ByType("input_text")]], listed(MAX_PARTS)
]


class Item(Strict):
    """Members of every item."""

    id: Mark = None
    status: Mark = None


class InputMessage(Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | ItemContent
    phase: Mark = None


class InputReasoning(Item):
    type: Literal["reasoning"]
    summary: ItemContent | None = None
    content: str | ItemContent | None = None

    @property
    def text(self) -> str:
        return text_of(self.content) or text_of(self.summary)


class NamedCall(Item):
    """A call of a tool by its name."""

    call_id: str
    name: str
    namespace: Mark = None

    @property
    def shown(self) -> str:
        """The tool's name as the model sees it, with its namespace."""
        return shown_name(self.name, self.namespace)

    @model_validator(mode="after")
    def _has_a_short_name(self) -> Self:
        if len(self.shown) > MAX_PAST_NAME_CHARS:
            what = f"has {len(self.shown)} characters with its namespace's; at most {MAX_PAST_NAME_CHARS} can be shown"
            raise refused("name", f"{what}, so shorten one")
        return self


class FunctionCall(NamedCall):
    type: Literal["function_call"]
    arguments: str


class CustomCall(NamedCall):
    type: Literal["custom_tool_call"]
    input: str


class SearchCall(Item):
    type: Literal["tool_search_call"]
    call_id: Mark = None
    execution: Mark = None
    arguments: dict[str, Any] | str | None = None


class CallOutput(Item):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    name: Mark = None
    namespace: Mark = None
    output: str | ItemContent


class FoundTools(Item):
    """Tools that a client found; the model may call them from then on."""

    type: Literal["tool_search_output"]
    call_id: Mark = None
    execution: Mark = None
    tools: Tools


class AdditionalTools(Item):
    type: Literal["additional_tools"]
    role: Mark = None
    tools: Tools


class HostedItem(LeftOut):
    """An item that only a hosted service can read, or whose tool only it can run."""

    types = (
        "(compaction|compaction_summary|web_search_call|file_search_call|code_interpreter_call|image_generation_call"
        f"|mcp_list_tools|mcp_call|local_shell_call|local_shell_call_output){DATED}"
    )


AnyItem: TypeAlias = Annotated[
    InputMessage
    | FunctionCall
    | CallOutput
    | InputReasoning
    | CustomCall
    | SearchCall
    | FoundTools
    | AdditionalTools
    | HostedItem,
    ByType("message"),
]


def _add(item: AnyItem, turns: Turns, place: str) -> None:
    """Adds what the model sees of an item: a message, or a part of the assistant's: thinking, then text, then calls."""
    match item:
        case InputMessage(role="assistant"):
            text = text_of(item.content)
            last = turns.messages[-1] if turns.messages else {"role": ""}
            if last["role"] == "assistant" and "content" not in last:
                last["content"] = text
            else:
                turns.add(place, "assistant", content=text)
        case InputMessage():
            turns.add(place, item.role, content=content_of(item.content))
        case InputReasoning() if item.text:
            turns.add(place, "assistant", reasoning_content=item.text)
        case FunctionCall():
            turns.add_call(place, item.call_id, item.shown, item.arguments)
        case CustomCall():
            turns.add_call(place, item.call_id, item.shown, {"input": item.input})
        case SearchCall(call_id=str() as call_id, arguments=given):
            turns.add_call(place, call_id, SEARCH, given or {})
        case CallOutput():
            turns.add(place, "tool", tool_call_id=item.call_id, content=text_of(item.output))
        case FoundTools(call_id=str() as call_id):
            names = ", ".join(one.function["name"] for one in Toolbox(item.tools).served)
            text = f"Found these tools: {names}" if names else "Found no tools."
            turns.add(place, "tool", tool_call_id=call_id, content=text)


class PlainFormat(Strict):
    type: Literal["text", "json_object"]


class SchemaFormat(JsonSchema):
    type: Literal["json_schema"]


class TextConfig(Strict):
    format: Annotated[PlainFormat | SchemaFormat, ByType("text")] | None = None


class Reasoning(Strict):
    ignores = IGNORED | {"summary", "generate_summary", "context"}  # reasoning is in plain text

    effort: Effort | None = None


class ResponseStreamOptions(StreamOptions):
    include_usage: bool | None = None  # the last event always has the usage


Included = Literal[
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "message.input_image.image_url",
]
"""What a response may be asked to include; reasoning is always there, in plain text, and the others never are."""


class ResponsesRequest(Asking):
    input: str | Annotated[list[AnyItem], listed(MAX_MESSAGES, 1)]
    instructions: str | None = None  # a system message before the input
    max_output_tokens: NumTokens | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: Annotated[list[Included], listed(16)] | None = None
    service_tier: ServiceTier | None = None
    metadata: Annotated[
        dict[str, Annotated[str, Field(max_length=512)]] | None,
        few(16, r"(?s).{0,64}", "must have names of at most 64 characters"),
    ] = None  # told again, and kept nowhere
    user: Mark = None  # taken, and kept nowhere
    stream_options: ResponseStreamOptions | None = None

    @model_validator(mode="after")
    def _tells_what_is_not_included(self, info: ValidationInfo) -> Self:
        if set(self.include or ()) - {"reasoning.encrypted_content"}:
            tell_ignored("include", info)
        return self

    @cached_property
    def items(self) -> list[AnyItem]:
        """The input; a text is a user's message."""
        return [InputMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    @cached_property
    def toolbox(self) -> Toolbox:
        brought = [
            (f"input.{i}.tools", item.tools)
            for i, item in enumerate(self.items)
            if isinstance(item, AdditionalTools | FoundTools)
        ]
        return Toolbox(self.tools or (), brought)

    @cached_property
    def turns(self) -> Turns:
        """The messages of the chat."""
        turns = Turns(one.place for one in self.toolbox.served)
        if self.instructions is not None:
            turns.add("instructions", "system", content=self.instructions)
        for i, item in enumerate(self.items):
            _add(item, turns, f"input.{i}")
        return turns

    @property
    def names(self) -> Names:
        """Patterns of a chat request's parameter names, and the names in responses."""
        return (
            *self.turns.names(),
            (r"the messages have\b", "the input has"),
            (r"\bmessages\b", "input"),
            (r"(?<=\d\.)(tool_call_)?id\b", "call_id"),
            (r"\bmax_completion_tokens\b", "max_output_tokens"),
            (r"\breasoning_effort\b", "reasoning.effort"),
            (r"\bresponse_format(\.json_schema\b(?=\.))?", "text.format"),
            (r"\btool_choice\.allowed_tools\b", "tool_choice"),
        )

    def chat(self, chats: ChatSupport) -> ChatRequest:
        """Returns the chat request for the same text; ApiError if chats refuse it."""
        given = self.text.format if self.text is not None else None
        form = (
            given.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
            if isinstance(given, SchemaFormat)
            else {}
        )
        asked = {
            "messages": [{"content": "", **turn} for turn in self.turns.messages],  # no text follows cut thinking
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort if self.reasoning is not None else None,
            "tools": self.toolbox.functions(),
            "tool_choice": self.toolbox.choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": given and {"type": given.type, **({"json_schema": form} if form else {})},
            "service_tier": self.service_tier,
        }
        return ChatRequest.standing_for(self, asked, self.names)
