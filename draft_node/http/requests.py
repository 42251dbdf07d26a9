"""Bodies of requests, checked strictly: an unknown or unsupported parameter is an error that names it."""

import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from draft_node.http.fields import (
    NOT_NULL,
    OF_ROLE,
    PART,
    PREDICTION,
    ROLE,
    SERVICE_TIER,
    Mark,
    No,
    NoList,
    Strict,
    TokenId,
    TokenIds,
    Verbosity,
    Yes,
    one_of,
)
from goodspeed.slo.objectives import LONGEST_S, MAX_TIER_CHARS, SHORTEST_S
from goodspeed.wire.fields import (
    MAX_BIASES,
    MAX_CONSTRAINT_CHARS,
    MAX_CONTEXT,
    MAX_STOP_IDS,
    Drafter,
    Otherwise,
)

MAX_BIAS = 100.0

_TOKEN_ID = re.compile(r"(0|[1-9][0-9]{0,9})\Z")


def _by_token(given: object) -> object:
    """Counts members before each is looked at, and wants ids in the one way that JSON writes a number."""
    if not isinstance(given, dict):
        return given
    if len(given) > MAX_BIASES:
        raise ValueError(f"must have at most {MAX_BIASES} members")
    if not all(isinstance(key, str) and _TOKEN_ID.match(key) for key in given):
        raise ValueError('must have token ids as its names, like {"50256": -100}')
    return given


Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
LogitBias: TypeAlias = Annotated[
    dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
    Field(max_length=MAX_BIASES),
    BeforeValidator(_by_token),
]


class RuleParameters(Strict):
    """What changes logits before a token is drawn, and what ends a text by its token."""

    presence_penalty: Penalty | None = Field(default=None, description="taken from each token that the output has")
    frequency_penalty: Penalty | None = Field(
        default=None, description="taken from each token for each time that the output has it"
    )
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = Field(
        default=None, description="divides (multiplies below 0) logits of what prompt or output have; 1 is off"
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="least probability, as a part of the largest one, after temperature; 0 is off"
    )
    logit_bias: LogitBias | None = Field(default=None, description="token ids with what is added to their logits")
    stop_token_ids: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_STOP_IDS)] | None = Field(
        default=None, description="tokens that end the text, also with ignore_eos"
    )


Schema: TypeAlias = dict[str, Any]
Source: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CONSTRAINT_CHARS)]


class JsonSchema(Strict):
    """A named JSON schema, as OpenAI has it."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    schema_: Schema | None = Field(default=None, alias="schema", description="left out: any JSON object")
    description: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="taken, and not used")
    strict: bool | None = Field(default=None, description="the schema is kept in any case")


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Strict):
    """Exactly one of these."""

    json_: Schema | Source | None = Field(default=None, alias="json", description="a JSON schema, or one as a string")
    regex: Source | None = None
    choice: Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=4096)] | None = None
    grammar: Source | None = Field(default=None, description="in Lark's syntax, as llguidance has it")
    json_object: bool | None = Field(default=None, description="true: any JSON object")


class FormParameters(Strict):
    """What both kinds of completion take."""

    structured_outputs: StructuredOutputs | None = Field(default=None, description="exactly one of its members")


class NeutralForms(Strict):
    """Older names of `structured_outputs`."""

    guided_json: None = None
    guided_regex: None = None
    guided_choice: None = None
    guided_grammar: None = None
    guided_decoding_backend: None = None
    guided_whitespace_pattern: None = None


MAX_TOOLS, MAX_CALLS, MAX_DEPTH = 128, 128, 32
"""Tools of a request, calls of a message, and lists and objects in each other in a tool's parameters."""

MAX_DESCRIPTION_CHARS, MAX_ARGUMENTS_CHARS, MAX_ID_CHARS = 1 << 14, 1 << 20, 256
NAME = r"^[A-Za-z0-9_.-]{1,64}$"

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

CHOICE = '"none", "auto", "required", or an object like {"type": "function", "function": {"name": "..."}}'
CHOICE_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "pattern": NAME}},
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
            "required": ["type", "function"],
            "additionalProperties": False,
        },
    ]
}


class Function(Strict):
    name: Annotated[str, Field(pattern=NAME), NOT_NULL]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="a JSON schema; none: an object of no members")
    strict: bool | None = Field(default=None, description="true: a call's arguments keep the schema")


class Tool(Strict):
    type: Annotated[Literal["function"], NOT_NULL]
    function: Annotated[Function, NOT_NULL]


class NamedFunction(Strict):
    name: Annotated[str, Field(pattern=NAME), NOT_NULL]


class ToolChoice(Strict):
    type: str
    function: NamedFunction | None = None


def _choice(given: object) -> object:
    """A word stands for an object with it."""
    if isinstance(given, str) and given in ("none", "auto", "required"):
        return {"type": given}
    if isinstance(given, dict) and given.get("type") == "function" and isinstance(given.get("function"), dict):
        return given
    raise ValueError(f"must be {CHOICE}")


class CalledFunction(Strict):
    name: Annotated[str, Field(pattern=NAME), NOT_NULL]
    arguments: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS), NOT_NULL]
    parsed_arguments: Any = Field(default=None, description="taken, and not used: the official client's own")


class ToolCall(Strict):
    """A call in a message of the assistant, as an answer had it."""

    id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS), NOT_NULL]
    type: Annotated[Literal["function"], NOT_NULL]
    function: Annotated[CalledFunction, NOT_NULL]
    index: Annotated[int, Field(ge=0)] | None = Field(default=None, description="taken, and not used")


Tools: TypeAlias = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None
Choice: TypeAlias = Annotated[ToolChoice, BeforeValidator(_choice), WithJsonSchema(CHOICE_SCHEMA)] | None
Calls: TypeAlias = Annotated[list[ToolCall], Field(fail_fast=True, max_length=MAX_CALLS)] | None


MAX_STOPS, MAX_STOP_CHARS = 4, 256
MAX_LOGPROBS = 20
MAX_MESSAGES = MAX_PARTS = 1024
MAX_DETOKENIZED = 1 << 16
MAX_METADATA, MAX_METADATA_NAME, MAX_METADATA_VALUE = 16, 64, 512

INT64 = (1 << 63) - 1

Milliseconds: TypeAlias = Annotated[float, Field(ge=1000 * SHORTEST_S, le=1000 * LONGEST_S)]
SLO = "a tier's name, or an object with ttft_ms, tpot_ms or both, each from 0.1 to 3600000"
_NUMBER = {"type": "number", "minimum": 1000 * SHORTEST_S, "maximum": 1000 * LONGEST_S}
_NUMBER_OR_NULL = {"anyOf": [_NUMBER, {"type": "null"}]}
SLO_SCHEMA = {
    "anyOf": [
        {"type": "string", "maxLength": MAX_TIER_CHARS},
        *(
            {
                "type": "object",
                "properties": {"ttft_ms": _NUMBER_OR_NULL, "tpot_ms": _NUMBER_OR_NULL, said: _NUMBER},
                "required": [said],
                "additionalProperties": False,
            }
            for said in ("ttft_ms", "tpot_ms")
        ),
    ]
}
SERVICE_TIERS = ("auto", "default", "flex", "priority", "scale")
"""What OpenAI's clients may send; all but the first two are served where there is a tier of that name."""

Stop: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(Strict):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = Field(
        default=None, description="with include_usage: usage so far in every chunk"
    )
    include_obfuscation: No = None


def _tier_or_object(given: object) -> object:
    """A tier's name stands for an object with it; objects ask for something."""
    if isinstance(given, str):
        return {"tier": given}
    if isinstance(given, dict) and "tier" not in given and any(value is not None for value in given.values()):
        return given
    raise ValueError(f"must be {SLO}")


class Slo(Strict):
    """A tier by its name, or objectives in milliseconds."""

    tier: Annotated[str, Field(max_length=MAX_TIER_CHARS)] | None = None
    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None


class Extension(Strict):
    """GoodSpeed's own parameters."""

    speculate: bool | None = Field(default=None, description="false: the target alone decodes, token by token")
    max_draft: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] | None = Field(
        default=None, description="longest draft; 0: none"
    )
    drafter: Drafter | None = Field(
        default=None,
        description="what may draft: auto takes what pays, model and ngram only that, none leaves all to the target; "
        "without it the node's --drafter counts",
    )
    mark_accepted: bool | None = Field(
        default=None, description="with stream: each choice of a chunk tells which text came from accepted drafts"
    )
    on_target_change: Literal["fail", "restart"] | None = Field(
        default=None,
        description="when the verify node comes back with another target model: fail (the default) ends the text with "
        "`target_changed`, restart begins it anew; not with stream",
    )
    prefix_cache: bool | None = Field(
        default=None,
        description="false: nothing that was read of earlier texts is used for this one, nor the other way round",
    )
    slo: Annotated[Slo, BeforeValidator(_tier_or_object), WithJsonSchema(SLO_SCHEMA)] | None = Field(
        default=None,
        description="what the text is to keep: the name of a tier, or an object with ttft_ms, tpot_ms or both",
    )
    otherwise: Otherwise | None = Field(
        default=None,
        description="where the verify node cannot promise that: best_effort (the default) serves the text as well as "
        "promises to others allow, refuse answers 429",
    )


class NeutralGeneration(Strict):
    """These fields are taken only at the value that changes nothing."""

    continue_final_message: No = None
    include_stop_str_in_output: No = None
    skip_special_tokens: Yes = None
    spaces_between_special_tokens: Yes = None
    use_beam_search: No = None


class Generation(RuleParameters, FormParameters, NeutralForms, NeutralGeneration):
    """What both kinds of completion take."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] | None = None
    ignore_eos: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=1e-6, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = Field(default=None, description="0 and -1 are off")
    seed: Annotated[int, Field(ge=-INT64 - 1, le=INT64)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: Stop | Annotated[list[Stop], Field(fail_fast=True, max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Mark = Field(default=None, description="taken, and kept nowhere")
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = Field(
        default=None, description="alternatives told of each token of the prompt; not with stream"
    )
    return_token_ids: bool | None = Field(default=None, description="adds the ids of the tokens of prompt and answer")
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] | None = Field(
        default=None, description="among one user's texts that wait for their turn, the lowest goes first; default 0"
    )
    goodspeed: Extension | None = None


class NeutralCompletion(Strict):
    """These fields are taken only at the value that changes nothing."""

    best_of: Annotated[int, Field(ge=1, le=1)] | None = None
    suffix: None = None


class CompletionRequest(Generation, NeutralCompletion):
    prompt: Annotated[
        str
        | Annotated[list[str], Field(fail_fast=True, min_length=1)]
        | TokenIds
        | Annotated[list[TokenIds], Field(fail_fast=True, min_length=1)],
        NOT_NULL,
    ]
    max_tokens: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] | None = Field(default=None, description="0 only with echo")
    echo: bool | None = Field(default=None, description="the prompt before the text, with its logprobs where asked for")
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


def _few(given: object) -> object:
    """Counts members before each is looked at: very many wrong ones would be very many errors."""
    if isinstance(given, dict) and len(given) > MAX_METADATA:
        raise ValueError(f"must have at most {MAX_METADATA} members")
    if isinstance(given, dict) and max(map(len, given), default=0) > MAX_METADATA_NAME:
        raise ValueError(f"must have names of at most {MAX_METADATA_NAME} characters")
    return given


Metadata: TypeAlias = (
    Annotated[
        dict[Annotated[str, Field(max_length=MAX_METADATA_NAME)], Annotated[str, Field(max_length=MAX_METADATA_VALUE)]],
        BeforeValidator(_few),
        Field(max_length=MAX_METADATA),
    ]
    | None
)
"""OpenAI's own bounds."""


class TextPart(Strict):
    type: Annotated[str, *one_of(PART, "text"), NOT_NULL]
    text: Annotated[str, NOT_NULL]


class Message(Strict):
    """A turn; only the assistant calls tools and thinks, and only a tool answers a call."""

    role: Annotated[str, *one_of(ROLE, "system", "developer", "user", "assistant", "tool"), NOT_NULL]
    content: str | Annotated[list[TextPart], Field(fail_fast=True, min_length=1, max_length=MAX_PARTS)] | None = Field(
        default=None, description="may be left out, or null, where there are tool_calls"
    )
    name: Mark = None
    tool_calls: Calls = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)] | None = None
    reasoning_content: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)] | None = Field(
        default=None, description="what the assistant thought; templates show the model what it needs of it"
    )
    reasoning: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)] | None = Field(
        default=None, description="the same under its other name"
    )
    refusal: None = None
    annotations: NoList = None
    audio: None = None
    function_call: None = None
    parsed: Any = Field(default=None, description="taken, and not used: the official client's own")

    @model_validator(mode="after")
    def _is_of_its_role(self) -> Self:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            is_null = "content" in self.model_fields_set
            says = "must not be null; send" if is_null else "must be given:"
            code = None if is_null else "missing_parameter"
            raise _of_role("content", f"{says} a string or a list of text parts", code)
        if self.role == "tool" and self.tool_call_id is None:
            raise _of_role("tool_call_id", "must be given: the id of the call that this answers", "missing_parameter")
        if self.role != "tool" and self.tool_call_id is not None:
            raise _of_role("tool_call_id", 'is for messages of the role "tool"; leave it out')
        for name in ("tool_calls", "reasoning_content", "reasoning"):
            if self.role != "assistant" and getattr(self, name):
                raise _of_role(name, 'is for messages of the role "assistant"; leave it out')
        return self


def _of_role(name: str, what: str, code: str | None = None) -> PydanticCustomError:
    return PydanticCustomError(OF_ROLE, "wrong for this role", {"name": name, "what": what, "code": code or ""})


class NeutralChat(Strict):
    """These fields are taken only at the value that changes nothing."""

    functions: NoList = None
    function_call: Literal["none", "auto"] | None = None
    modalities: Annotated[list[Literal["text"]], Field(min_length=1, max_length=1)] | None = None
    audio: None = None
    web_search_options: None = None
    store: No = None
    moderation: None = None
    prompt_cache_options: None = None
    prompt_cache_retention: None = None
    add_generation_prompt: Yes = None


class Prediction(Strict):
    """A text that the answer is expected to be much like."""

    type: Annotated[str, *one_of(PREDICTION, "content"), NOT_NULL]
    content: Annotated[
        str | Annotated[list[TextPart], Field(fail_fast=True, min_length=1, max_length=MAX_PARTS)], NOT_NULL
    ]


class ChatRequest(Generation, NeutralChat):
    response_format: ResponseFormat | None = None
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES), NOT_NULL]
    tools: Tools = None
    tool_choice: Choice = None
    parallel_tool_calls: bool | None = Field(default=None, description="false: the answer ends after its first call")
    reasoning_effort: Effort | None = Field(
        default=None, description="for the chat template; none switches thinking off where the template can"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(default=None, description="variables of the chat template")
    enable_thinking: bool | None = Field(
        default=None, description="switches thinking on or off; ignored where the model cannot think"
    )
    verbosity: Verbosity = Field(default=None, description="ignored")
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    service_tier: Annotated[str, *one_of(SERVICE_TIER, *SERVICE_TIERS)] | None = Field(
        default=None, description="auto and default ask for nothing; another one for the tier of that name"
    )
    prediction: Prediction | None = Field(default=None, description="drafts come from it, too")
    metadata: Metadata = Field(default=None, description="taken, and kept nowhere")
    safety_identifier: Mark = Field(default=None, description="taken, and kept nowhere")
    prompt_cache_key: Mark = Field(default=None, description="taken, and kept nowhere")


class TokenizeRequest(Strict):
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)] | None = None
    tools: Tools = Field(default=None, description="with messages")
    chat_template_kwargs: dict[str, Any] | None = Field(default=None, description="with messages")
    add_special_tokens: Yes = None
    add_generation_prompt: Yes = None
    return_token_strs: No = None


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_DETOKENIZED), NOT_NULL]


NEUTRAL = {
    *NeutralForms.model_fields,
    *NeutralGeneration.model_fields,
    *NeutralCompletion.model_fields,
    *NeutralChat.model_fields,
}
"""Parameters that are known and not supported."""
