"""Schema of a `/v1/responses` body, and its translation to a chat request for the same text.

Parameters that need state between requests are not supported.
"""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, Tag, ValidationInfo, model_validator

from draft_node.http.parts import kind_of
from draft_node.http.requests import (
    MAX_MESSAGES,
    Asking,
    ChatRequest,
    Effort,
    JsonSchema,
    NumTokens,
    ServiceTier,
    StreamOptions,
    listed,
)
from draft_node.http.responses.items import AnyItem, Mark, messages_of, tools_of
from draft_node.http.responses.tools import Toolbox, ToolChoice, Tools
from draft_node.http.strict import Strict, few, tell_ignored
from draft_node.http.translation import Names, chat_request, without_type


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


Summary = Literal["auto", "concise", "detailed"]


class Reasoning(Strict):
    effort: Effort | None = None
    summary: Summary | None = Field(default=None, description="ignored: reasoning is in plain text")
    generate_summary: Summary | None = Field(default=None, description="likewise")
    context: Literal["auto", "current_turn", "all_turns"] | None = Field(
        default=None, description="ignored: the chat template says which reasoning the model is shown again"
    )

    @model_validator(mode="after")
    def _tells_what_is_ignored(self, info: ValidationInfo) -> Self:
        for name in ("summary", "generate_summary", "context"):
            if getattr(self, name) is not None:
                tell_ignored(name, info)
        return self


class ResponseStreamOptions(StreamOptions):
    include_usage: bool | None = Field(default=None, description="the last event always has the usage")


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
    instructions: str | None = Field(default=None, description="a message of the system before the input")
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
    ] = Field(default=None, description="told again, and kept nowhere")
    user: Mark = Field(default=None, description="taken, and kept nowhere")
    stream_options: ResponseStreamOptions | None = None

    @model_validator(mode="after")
    def _tells_what_is_not_included(self, info: ValidationInfo) -> Self:
        if set(self.include or ()) - {"reasoning.encrypted_content"}:
            tell_ignored("include", info)
        return self

    @cached_property
    def toolbox(self) -> Toolbox:
        return Toolbox(self.tools or (), tools_of(self.input))


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
    """Returns the patterns of the chat's parameter names, and the names in this request."""
    return (*request.toolbox.names(), *NAMES)


def chat_of(request: ResponsesRequest) -> ChatRequest:
    """Returns the chat request for the same text; ApiError, with responses' parameter names, if chats refuse it."""
    given = request.text.format if request.text is not None else None
    schema = {"type": "json_schema", "json_schema": without_type(given)} if isinstance(given, SchemaFormat) else given
    asked = {
        "messages": messages_of(request.input, request.instructions),
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "tools": request.toolbox.functions(),
        "tool_choice": request.toolbox.choice(request.tool_choice),
        "parallel_tool_calls": request.parallel_tool_calls,
        "response_format": schema.model_dump() if isinstance(schema, BaseModel) else schema,
        "service_tier": request.service_tier,
    }
    return chat_request(request, asked, names_of(request))
