"""What requests may say, checked strictly: an unknown or unsupported parameter is an error that names it.

`Neutral` lists parameters that official clients and load tools send along: each is taken at the value that changes
nothing, and refused at any other. null is the same as not given, and an error where something has to be given.
`wanted.py` checks the limits that are settings (`n`, prompts); `wording.py` words the errors.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from draft_node.serve.api.request.fields import (
    NOT_NULL,
    PART,
    ROLE,
    SERVICE_TIER,
    Mark,
    No,
    NoDict,
    NoList,
    One,
    Strict,
    TokenId,
    TokenIds,
    Yes,
    Zero,
    one_of,
)
from goodspeed.slo.objectives import LONGEST_S, MAX_TIER_CHARS, SHORTEST_S
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, Drafter, Otherwise

MAX_STOPS, MAX_STOP_CHARS = 4, 256
MAX_LOGPROBS = 20
MAX_MESSAGES = MAX_PARTS = 1024
MAX_DETOKENIZED = 1 << 16
MAX_METADATA = 16

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


class Neutral(Strict):
    """These fields are taken only at the value that changes nothing."""

    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    repetition_penalty: One = None
    min_p: Zero = None
    logit_bias: NoDict = None


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
    max_draft: Annotated[int, Field(ge=0, le=MAX_DRAFT)] | None = Field(
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


class Generation(Neutral):
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
    echo: bool | None = Field(default=None, description="not together with logprobs")
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


def _few(given: object) -> object:
    """Counts members before each is looked at: very many wrong ones would be very many errors."""
    if isinstance(given, dict) and len(given) > MAX_METADATA:
        raise ValueError(f"must have at most {MAX_METADATA} members")
    return given


Metadata: TypeAlias = Annotated[dict[str, str], BeforeValidator(_few), Field(max_length=MAX_METADATA)] | None


class TextPart(Strict):
    type: Annotated[str, *one_of(PART, "text"), NOT_NULL]
    text: Annotated[str, NOT_NULL]


class Message(Strict):
    role: Annotated[str, *one_of(ROLE, "system", "developer", "user", "assistant"), NOT_NULL]
    content: Annotated[
        str | Annotated[list[TextPart], Field(fail_fast=True, min_length=1, max_length=MAX_PARTS)], NOT_NULL
    ]
    name: Mark = None
    refusal: None = None
    annotations: NoList = None
    audio: None = None
    function_call: None = None
    tool_calls: NoList = None


class TextFormat(Strict):
    type: Literal["text"]


class NeutralChat(Strict):
    """These fields are taken only at the value that changes nothing."""

    response_format: TextFormat | None = None
    tools: NoList = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    functions: NoList = None
    function_call: Literal["none", "auto"] | None = None
    modalities: Annotated[list[Literal["text"]], Field(min_length=1, max_length=1)] | None = None
    audio: None = None
    prediction: None = None
    reasoning_effort: Literal["none"] | None = None
    verbosity: Literal["medium"] | None = None
    web_search_options: None = None
    store: No = None
    moderation: None = None
    prompt_cache_options: None = None
    prompt_cache_retention: None = None
    add_generation_prompt: Yes = None


class ChatRequest(Generation, NeutralChat):
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES), NOT_NULL]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    service_tier: Annotated[str, *one_of(SERVICE_TIER, *SERVICE_TIERS)] | None = Field(
        default=None, description="auto and default ask for nothing; another one for the tier of that name"
    )
    metadata: Metadata = Field(default=None, description="taken, and kept nowhere")
    safety_identifier: Mark = Field(default=None, description="taken, and kept nowhere")
    prompt_cache_key: Mark = Field(default=None, description="taken, and kept nowhere")


class TokenizeRequest(Strict):
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: Yes = None
    add_generation_prompt: Yes = None
    return_token_strs: No = None


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_DETOKENIZED), NOT_NULL]


NEUTRAL = {*Neutral.model_fields, *NeutralCompletion.model_fields, *NeutralChat.model_fields}
"""Parameters that are known and not supported."""
