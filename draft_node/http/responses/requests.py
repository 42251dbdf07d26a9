"""The body of a request for a response; what needs state that is kept between requests is refused."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from draft_node.http.errors import ApiError
from draft_node.http.fields import NOT_NULL, SERVICE_TIER, UNSERVED, Mark, No, Strict, Verbosity, one_of
from draft_node.http.requests import (
    INT64,
    MAX_DESCRIPTION_CHARS,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    SERVICE_TIERS,
    Effort,
    Extension,
    Metadata,
)
from goodspeed.wire.fields import MAX_CONTEXT

TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
KINDS = ("message", "function_call", "function_call_output", "reasoning")
NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}
"""What each kind of item cannot do without."""

TAKEN = {
    "message": (*NEEDED["message"], "id", "status", "phase"),
    "function_call": (*NEEDED["function_call"], "id", "status"),
    "function_call_output": (*NEEDED["function_call_output"], "id", "status"),
    "reasoning": ("id", "status", "summary", "content"),
}
"""What each kind of item may have beside its type."""


class Part(Strict):
    type: Annotated[str, *one_of("text_part", *TEXTS), NOT_NULL]
    text: Annotated[str, NOT_NULL]
    annotations: list[Any] | None = Field(default=None, description="of an earlier response; taken, and not looked at")
    logprobs: list[Any] | None = Field(default=None, description="likewise")


def _parts(given: object) -> object:
    """A text stands for one part with it."""
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


_PART = {"$ref": "#/components/schemas/Part"}
_TEXT_OR_PARTS = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": _PART, "maxItems": MAX_PARTS}, {"type": "null"}]
}
Parts: TypeAlias = Annotated[list[Part], Field(fail_fast=True, max_length=MAX_PARTS)]
TextOrParts: TypeAlias = Annotated[Parts | None, BeforeValidator(_parts), WithJsonSchema(_TEXT_OR_PARTS)]


class Item(Strict):
    """A message, a call of a function, what came of one, or what was thought; each kind has fields of its own."""

    type: Annotated[str, *one_of("item", *KINDS)] | None = Field(default=None, description="default: message")
    id: Mark = None
    status: Mark = None
    role: Annotated[str, *one_of("item_role", "system", "developer", "user", "assistant")] | None = None
    content: TextOrParts = None
    phase: Mark = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: TextOrParts = None
    summary: Parts | None = None
    encrypted_content: None = None
    namespace: None = None
    caller: None = None


def _items(given: object) -> object:
    """A text stands for one message of the user with it."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


_INPUT = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#/components/schemas/Item"}, "minItems": 1, "maxItems": MAX_MESSAGES},
    ]
}
Input: TypeAlias = Annotated[
    list[Item],
    Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES),
    BeforeValidator(_items),
    WithJsonSchema(_INPUT),
]


def messages_of(items: Sequence[Item], instructions: str | None) -> list[dict[str, Any]]:
    """The conversation as messages of a chat request; ApiError names what an item lacks."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    turn: dict[str, Any] = {}  # of the assistant, as far as it goes
    for i, item in enumerate(items):
        _check(i, item)
        if item.type == "function_call_output" or (_is_message(item) and item.role != "assistant"):
            messages += [turn] if turn else []
            turn = {}
            messages.append(_told(item))
            continue
        if turn and not _continues(turn, item):
            messages.append(turn)
            turn = {}
        turn = _grown(turn, item)
    return [*messages, *([turn] if turn else [])]


def _is_message(item: Item) -> bool:
    return item.type in (None, "message")


def _check(i: int, item: Item) -> None:
    kind = item.type or "message"
    for name in NEEDED[kind]:
        if getattr(item, name) is None:
            what = f"input.{i}.{name} must be given: an item of the type {kind!r} has one"
            raise ApiError(400, what, param=f"input.{i}.{name}", code="missing_parameter")
    foreign(item, TAKEN[kind], f"input.{i}", f"an item of the type {kind!r}")


def foreign(given: Strict, taken: Sequence[str], where: str, what: str) -> None:
    """ApiError for a member that has a value and does not belong to what is given, which is a `what`."""
    for name in sorted(given.model_fields_set - {"type", *taken, *(given.model_extra or ())}):
        if getattr(given, name) is not None:
            own = f"{where}.{name.removesuffix('_')}"
            raise ApiError(400, f"{own} does not belong to {what}; leave it out", param=own)


def _told(item: Item) -> dict[str, Any]:
    """A message of anybody but the assistant."""
    if item.type == "function_call_output":
        return {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
    return {"role": item.role, "content": _text(item.content)}


def _continues(turn: dict[str, Any], item: Item) -> bool:
    """Whether an item of the assistant may be of the turn so far: thinking, then text, then calls."""
    if item.type == "function_call":
        return True
    return "tool_calls" not in turn and "content" not in turn and (item.type != "reasoning" or not turn)


def _grown(turn: dict[str, Any], item: Item) -> dict[str, Any]:
    turn = turn or {"role": "assistant"}
    match item.type:
        case "reasoning":
            return turn | {"reasoning_content": _text(item.content) or _text(item.summary)}
        case "function_call":
            function = {"name": item.name, "arguments": item.arguments}
            calls = [*turn.get("tool_calls", []), {"id": item.call_id, "type": "function", "function": function}]
            return turn | {"tool_calls": calls}
    return turn | {"content": _text(item.content)}


def _text(parts: Sequence[Part] | None) -> str:
    return "".join(part.text for part in parts or ())


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
