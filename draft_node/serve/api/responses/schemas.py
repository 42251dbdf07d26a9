"""What a request for a response may say beside its input. What needs state that is kept between requests is refused."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from draft_node.serve.api.request.fields import NOT_NULL, SERVICE_TIER, UNSERVED, Mark, No, Strict, Verbosity, one_of
from draft_node.serve.api.request.schemas import INT64, SERVICE_TIERS, Extension, Metadata
from draft_node.serve.api.request.tools import MAX_DESCRIPTION_CHARS, MAX_TOOLS, Effort
from draft_node.serve.api.responses.items import Input
from goodspeed.wire.fields import MAX_CONTEXT

CONVERSATION = "is not served: no response is kept here; send the whole conversation as input"
THINKING = "reasoning.encrypted_content"
"""What stateless agents ask for, to send back what was thought: it is in the output."""

ALONE = "is not served: a response is made while its request waits, or is streamed; leave it out, or send false"


def _never(what: str) -> BeforeValidator:
    """Refuses everything but null, with what is said of the parameter."""

    def check(given: object) -> None:
        if given is not None:
            raise PydanticCustomError(UNSERVED, "not served", {"what": what})

    return BeforeValidator(check)


def _only(neutral: object, what: str) -> BeforeValidator:
    """Refuses everything but one value and null, likewise."""

    def check(given: object) -> object:
        if given is not None and not (given == neutral and type(given) is type(neutral)):
            raise PydanticCustomError(UNSERVED, "not served", {"what": what})
        return given

    return BeforeValidator(check)


OfState: TypeAlias = Annotated[None, _never(CONVERSATION)]
Never: TypeAlias = Annotated[None, _never("is not supported; leave it out")]


class FunctionTool(Strict):
    """A function that may be called; other tools are not served."""

    type: Annotated[str, *one_of("tool", "function"), NOT_NULL]
    name: Annotated[str, NOT_NULL]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def _named(given: object) -> object:
    """A word stands for an object with it."""
    return {"type": given} if isinstance(given, str) else given


class ToolChoice(Strict):
    type: Annotated[str, *one_of("choice", "none", "auto", "required", "function")]
    name: str | None = None


CHOICE_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {"type": {"const": "function"}, "name": {"type": "string"}},
            "required": ["type", "name"],
            "additionalProperties": False,
        },
    ]
}


class Format(Strict):
    """The form of the text; `schema` and the three beside it are for json_schema."""

    type: Annotated[Literal["text", "json_object", "json_schema"], NOT_NULL]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextConfig(Strict):
    format: Format | None = None
    verbosity: Verbosity = None


class Reasoning(Strict):
    effort: Effort | None = None
    summary: Never = None
    generate_summary: Never = None


class StreamOptions(Strict):
    include_obfuscation: No = None


class ResponsesRequest(Strict):
    input: Annotated[Input, NOT_NULL]
    instructions: str | None = Field(default=None, description="a message of the system before the input")
    model: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=1e-6, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = Field(default=None, description="0 and -1 are off")
    seed: Annotated[int, Field(ge=-INT64 - 1, le=INT64)] | None = None
    tools: Annotated[list[FunctionTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: Annotated[ToolChoice, BeforeValidator(_named), WithJsonSchema(CHOICE_SCHEMA)] | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: Annotated[str, *one_of(SERVICE_TIER, *SERVICE_TIERS)] | None = None
    metadata: Metadata = Field(default=None, description="told again, and kept nowhere")
    user: Mark = Field(default=None, description="taken, and kept nowhere")
    safety_identifier: Mark = Field(default=None, description="taken, and kept nowhere")
    prompt_cache_key: Mark = Field(default=None, description="taken, and kept nowhere")
    goodspeed: Extension | None = None

    store: Annotated[No, _only(False, "must be false, or left out: no response is kept")] = None
    background: Annotated[No, _only(False, ALONE)] = None
    truncation: Annotated[
        Literal["disabled"] | None, _only("disabled", 'must be "disabled", or left out: nothing is cut')
    ] = None
    include: Annotated[
        Annotated[list[Annotated[str, *one_of("include", THINKING)]], Field(fail_fast=True, max_length=1)] | None,
        Field(description="what is thought is told in any case, and in plain text"),
    ] = None
    top_logprobs: Annotated[
        Annotated[int, Field(ge=0, le=0)] | None, _only(0, "is not supported here; ask for a chat completion")
    ] = None
    previous_response_id: OfState = None
    conversation: OfState = None
    prompt: Never = None
    max_tool_calls: Never = None
    context_management: Never = None
    prompt_cache_options: Never = None
    prompt_cache_retention: Never = None
    moderation: Never = None
