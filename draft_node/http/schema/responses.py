"""Schemas of `/v1/responses`: input items and parameters, without those that need state between requests."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationInfo, model_validator

from draft_node.http.schema.chat import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_PAST_NAME_CHARS,
    Asking,
    Effort,
    JsonSchema,
    NumTokens,
    ServiceTier,
    StreamOptions,
    listed,
)
from draft_node.http.schema.parts import Unseen, text_of
from draft_node.http.schema.response_tools import (
    DATED,
    AnyTool,
    Toolbox,
    ToolChoice,
    Tools,
    shown_name,
)
from draft_node.http.schema.strict import IGNORED, ByType, LeftOut, Strict, few, refused, tell_ignored

Mark: TypeAlias = Annotated[str, Field(max_length=512)] | None


class Part(Strict):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = None  # of an earlier response; taken, and not looked at
    logprobs: list[Any] | None = None  # likewise


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Parts: TypeAlias = Annotated[list[Annotated[Part | RefusalPart | Unseen, ByType("input_text")]], listed(MAX_PARTS)]


class Item(Strict):
    """Members of every item."""

    id: Mark = None
    status: Mark = None


class InputMessage(Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts
    phase: Mark = None


class InputReasoning(Item):
    type: Literal["reasoning"]
    summary: Parts | None = None
    content: str | Parts | None = None

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
        """The name that the model knows."""
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
    output: str | Parts


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


class ItemReference(LeftOut):
    types = "item_reference"

    @model_validator(mode="after")
    def _is_kept_nowhere(self) -> Self:
        raise refused("type", 'must not be "item_reference": no item is kept here; send the item itself')


class HostedItem(LeftOut):
    """An item that only a hosted service can read, or whose tool only it can run."""

    types = (
        "(compaction|compaction_summary|web_search_call|image_generation_call|mcp_list_tools|local_shell_call"
        f"|local_shell_call_output){DATED}"
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
    | ItemReference
    | HostedItem,
    ByType("message"),
]


def tools_of(items: str | Sequence[AnyItem]) -> list[tuple[str, Sequence[AnyTool]]]:
    """Returns the tools that items bring, by dotted name."""
    listed = enumerate(() if isinstance(items, str) else items)
    return [(f"input.{i}.tools", item.tools) for i, item in listed if isinstance(item, AdditionalTools | FoundTools)]


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
    def toolbox(self) -> Toolbox:
        return Toolbox(self.tools or (), tools_of(self.input))
