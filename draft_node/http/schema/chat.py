"""Schemas of request bodies; `errors.py` words the errors."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, model_validator

from draft_node.config import MAX_MODEL_NAME
from draft_node.http.schema.content_parts import ContentPart, Unseen
from draft_node.http.schema.errors import Names, renamed
from draft_node.http.schema.strict import IGNORED, ByType, Strict, few, refused
from draft_node.service.chat_support import ChatSupport
from goodspeed.slo.objectives import LONGEST_S, MAX_TIER_CHARS, MAX_WINDOW, SHORTEST_S
from goodspeed.wire.fields import MAX_BIASES, MAX_CONSTRAINT_CHARS, MAX_CONTEXT, MAX_STOP_IDS, Drafter, Otherwise

MAX_LOGPROBS = 20
MAX_MESSAGES, MAX_PARTS = 1 << 14, 1 << 12
MAX_DETOKENIZED, MAX_BIAS = 1 << 16, 100.0
MAX_TOOLS = MAX_CALLS = 1 << 10
"""Most tools of a request, and calls of a message."""

MAX_CHOICES = 16
"""Most choices per prompt."""

MAX_ARGUMENTS_CHARS, MAX_ID_CHARS, INT64 = 1 << 20, 256, (1 << 63) - 1


def listed(most: int | None, least: int | None = None) -> Any:
    """Bounds a list's length; only the first wrong member is an error."""
    return Field(fail_fast=True, min_length=least, max_length=most)


MAX_NAME_CHARS, MAX_PAST_NAME_CHARS = 128, 256  # of tools
Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]  # Anthropic's longest; OpenAI's has 64
PastName: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_PAST_NAME_CHARS)]  # of a past call
TokenId: TypeAlias = Annotated[int, Field(ge=-INT64 - 1, le=INT64)]  # `check_ids` knows the vocabulary
TokenIds: TypeAlias = Annotated[list[TokenId], listed(None, 1)]
NumTokens: TypeAlias = Annotated[int, Field(ge=1, le=INT64)]  # cut to the context: some send the largest of 32 bits
NumLogprobs: TypeAlias = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
Stop: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
ModelName: TypeAlias = Annotated[str, Field(max_length=MAX_MODEL_NAME)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
LogitBias: TypeAlias = Annotated[
    dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
    few(MAX_BIASES, r"0|[1-9][0-9]{0,9}", 'must have token ids as its names, like {"50256": -100}'),
]
Milliseconds: TypeAlias = Annotated[float, Field(ge=1000 * SHORTEST_S, le=1000 * LONGEST_S)]
Schema: TypeAlias = dict[str, Any]
Source: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CONSTRAINT_CHARS)]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ServiceTier: TypeAlias = Literal["auto", "default", "flex", "priority", "scale"]
"""Tiers that OpenAI's clients may send; all but the first two require a tier of that name."""


class JsonSchema(Strict):
    """A named JSON schema, as in the OpenAI API."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    schema_: Schema | None = Field(default=None, alias="schema")  # left out: any JSON object
    description: Annotated[str, Field(max_length=4096)] | None = None  # taken, and not used
    strict: bool | None = None  # the schema is kept in any case


class PlainFormat(Strict):
    type: Literal["text"]


class ObjectFormat(Strict):
    type: Literal["json_object"]
    schema_: Schema | None = Field(default=None, alias="schema")  # left out: any JSON object


class SchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat: TypeAlias = Annotated[PlainFormat | ObjectFormat | SchemaFormat, ByType()]


class StructuredOutputs(Strict):
    """Exactly one of these members."""

    json_: Schema | Source | None = Field(default=None, alias="json")  # a JSON schema, or one as a string
    regex: Source | None = None
    choice: Annotated[list[str], listed(4096, 1)] | None = None
    grammar: Source | None = None  # in Lark's syntax, as llguidance has it
    json_object: Literal[True] | None = None  # any JSON object


class Function(Strict):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None  # a JSON schema; none: an object of no members
    strict: bool | None = None  # true: a call's arguments keep the schema


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: Name


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


class Allowed(Strict):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], listed(MAX_TOOLS, 1)]


class AllowedTools(Strict):
    """Some of the tools, to which calls are restricted."""

    type: Literal["allowed_tools"]
    allowed_tools: Allowed


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedTool | AllowedTools


class PastFunction(Strict):
    name: PastName
    arguments: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)]


class ToolCall(Strict):
    """A tool call in an assistant message, as sent in an earlier answer."""

    id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
    type: Literal["function"]
    function: PastFunction


def call_of(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Turns:
    """The messages of a chat that another API's request stands for, and where the request has what they are made of."""

    def __init__(self, tools: Iterable[str]) -> None:
        """tools: places of the chat's tools in the request."""
        self.messages = list[dict[str, Any]]()
        self._places = {f"tools.{i}": place for i, place in enumerate(tools)}

    def add(self, place: str, role: str, **members: Any) -> None:
        """Adds a message. place: dotted name of what it is made of."""
        self._places[f"messages.{len(self.messages)}"] = place
        self.messages.append({"role": role, **members})

    def add_call(self, place: str, call_id: str, name: str, arguments: str | dict[str, Any]) -> None:
        """Adds a call to the last message, or to a new one if that is not the assistant's."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.add(place, "assistant")
        calls = self.messages[-1].setdefault("tool_calls", [])
        self._places[f"messages.{len(self.messages) - 1}.tool_calls.{len(calls)}"] = place
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append(call_of(call_id, name, written))

    def names(self) -> Names:
        """Returns the patterns of the chat's names of messages, calls and tools, which become their places."""

        def place(found: re.Match[str]) -> str:
            return self._places.get(found[1], found[0])

        return (
            (r"(?<![.\w])((?:messages|tools)\.\d+(?:\.tool_calls\.\d+)?)(?:\.(?:function|role|tool_calls)\b)?", place),
            (r"(?<=\d\.)reasoning_content\b", "content"),
            (r"(?<=\.)function\.", ""),
        )


Tools: TypeAlias = Annotated[list[Tool], listed(MAX_TOOLS)] | None


class StreamOptions(Strict):
    """Options of a stream; each endpoint defines its own."""


class CompletionStreamOptions(StreamOptions):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # usage so far in every chunk


class Slo(Strict):
    """Latency objectives in milliseconds: TTFT, TPOT, or both; with a TPOT also that of thinking, and the window."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    thinking_tpot_ms: Milliseconds | None = None
    tpot_window: Annotated[int, Field(ge=0, le=MAX_WINDOW)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.ttft_ms is None and self.tpot_ms is None:
            raise ValueError("must have ttft_ms, tpot_ms or both")
        if self.tpot_ms is None and (self.thinking_tpot_ms, self.tpot_window) != (None, None):
            raise ValueError("must have tpot_ms, because thinking_tpot_ms and tpot_window depend on it")
        return self


class Extension(Strict):
    """GoodSpeed's own parameters."""

    max_draft: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None  # longest draft
    drafter: Drafter | None = None  # what may draft; without it the node's --drafter counts
    prefix_cache: bool | None = None  # false: this text and others share no keys and values
    # what the text is to keep: the name of a tier, or ttft_ms, tpot_ms or both
    slo: Annotated[str, Field(max_length=MAX_TIER_CHARS)] | Slo | None = None
    # where that cannot be promised: best_effort (the default) serves it anyway, refuse answers 429
    otherwise: Otherwise | None = None


class Asking(Strict):
    """Parameters of every request that generates texts."""

    model: ModelName | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=1e-6, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None  # 0 and -1 are off
    seed: Annotated[int, Field(ge=-INT64 - 1, le=INT64)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    goodspeed: Extension | None = None

    @property
    def own(self) -> Extension:
        """GoodSpeed's own parameters, of which none may be given."""
        return self.goodspeed or Extension()

    def ignored(self, chats: ChatSupport) -> Iterable[str]:
        """Returns the members that this node's model ignores."""
        return ()

    @model_validator(mode="after")
    def _suits_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise refused("stream_options", "needs stream: true; send both, or neither")
        return self


class TextRequest(Asking):
    """Parameters of completions and chat completions."""

    max_tokens: NumTokens | None = None
    max_completion_tokens: NumTokens | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] | None = None
    ignore_eos: bool | None = None
    # least probability, as a part of the largest one, after temperature; 0 is off
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None  # taken from each token that the output has
    frequency_penalty: Penalty | None = None  # likewise, for each time that it has it
    # divides (multiplies below 0) logits of what prompt or output have; 1 is off
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: LogitBias | None = None  # token ids with what is added to their logits
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], listed(4)] | None = None
    # tokens that end the text, also with ignore_eos
    stop_token_ids: Annotated[list[TokenId], listed(MAX_STOP_IDS)] | None = None
    structured_outputs: StructuredOutputs | None = None  # exactly one of its members
    stream_options: CompletionStreamOptions | None = None
    return_token_ids: bool | None = None  # adds the ids of the tokens of prompt and answer


class CompletionRequest(TextRequest):
    prompt: str | Annotated[list[str], listed(None, 1)] | TokenIds | Annotated[list[TokenIds], listed(None, 1)]
    max_tokens: Annotated[int, Field(ge=0, le=INT64)] | None = None  # 0 only with echo
    echo: bool | None = None  # the prompt before the text, with its logprobs where asked for
    logprobs: NumLogprobs | None = None


class Message(Strict):
    """A message; only the assistant may have tool calls and reasoning, only a tool may answer a call."""

    ignores = IGNORED | {"refusal"}  # beside content
    advice: ClassVar[Mapping[str, str]] = {"function_call": "send tool_calls"}

    role: Literal["system", "developer", "user", "assistant", "tool"]
    # may be left out, or null, where there are tool_calls
    content: str | Annotated[list[ContentPart], listed(MAX_PARTS, 1)] | None = None
    name: Annotated[str, Field(max_length=512)] | None = None
    tool_calls: Annotated[list[ToolCall], listed(MAX_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)] | None = None
    # what the assistant thought; templates show the model what it needs of it
    reasoning_content: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)] | None = None
    reasoning: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)] | None = None  # the same under its other name

    @model_validator(mode="before")
    @classmethod
    def _has_said_what_it_refused(cls, given: Any) -> Any:
        is_said = isinstance(given, dict) and given.get("role") == "assistant" and not given.get("content")
        if not is_said or not isinstance(given.get("refusal"), str):
            return given
        return {**given, "content": given["refusal"], "refusal": None}

    @model_validator(mode="after")
    def _is_of_its_role(self) -> Self:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            code = "" if "content" in self.model_fields_set else "missing_parameter"
            raise refused("content", "must be given: a string or a list of text parts", code)
        if self.role == "tool" and self.tool_call_id is None:
            raise refused("tool_call_id", "must be given: the id of the call that this answers", "missing_parameter")
        if self.role != "assistant" and (self.model_extra or {}).get("refusal"):
            raise refused("refusal", 'is for messages of the role "assistant"; leave it out')
        of = {"tool_call_id": "tool", **dict.fromkeys(("tool_calls", "reasoning_content", "reasoning"), "assistant")}
        for name, role in of.items():
            if self.role != role and getattr(self, name):
                raise refused(name, f'is for messages of the role "{role}"; leave it out')
        return self


class ChatRequest(TextRequest):
    messages: Annotated[list[Message], listed(MAX_MESSAGES, 1)]
    response_format: ResponseFormat | None = None
    tools: Tools = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None  # false: the answer ends after its first call
    reasoning_effort: Effort | None = None  # for the chat template; none switches thinking off where the template can
    chat_template_kwargs: dict[str, Any] | None = None  # variables of the chat template
    enable_thinking: bool | None = None  # switches thinking on or off; ignored where the model cannot think
    # a last message of the assistant is continued; false: a new turn follows it
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None  # its opposite
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    service_tier: ServiceTier | None = None  # auto and default ask for nothing; another one for the tier of that name

    @model_validator(mode="after")
    def _can_be_seen(self) -> Self:
        """Refuses a question about an image or the like. An agent goes on without: it would send the image for ever."""
        last = self.messages[-1]
        parts = () if isinstance(last.content, str) else last.content or ()
        unseen = [part for part in parts if isinstance(part, Unseen)]
        if unseen and last.role == "user" and not self.tools:
            what = f"must not end with a question about {unseen[0].noun}, which this model cannot read; say it in words"
            raise refused("messages", what, "unsupported_parameter")
        return self

    @classmethod
    def standing_for(cls, request: BaseModel, asked: dict[str, Any], names: Names) -> Self:
        """Returns the chat that a request of another API stands for; ApiError, with its names, if chats refuse it.

        asked: parameters of the chat beside those of the same name and meaning; None: not given.
        """
        alike = ("model", "temperature", "top_p", "top_k", "seed", "goodspeed")
        given = {name: getattr(request, name, None) for name in alike} | asked
        with renamed(names):
            return cls.model_validate({name: value for name, value in given.items() if value is not None})

    def ignored(self, chats: ChatSupport) -> Iterator[str]:
        if self.enable_thinking is not None and not chats.switches(tools=bool(self.tools)):
            yield "enable_thinking"


class TokenizeRequest(Strict):
    advice: ClassVar[Mapping[str, str]] = {"add_special_tokens": "leave it out"}

    model: ModelName | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], listed(MAX_MESSAGES, 1)] | None = None
    # with messages, as in chats
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    tools: Tools = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None

    @model_validator(mode="after")
    def _has_one_of_both(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise refused("prompt", "or messages must be given, and not both")
        of_chats = ("continue_final_message", "tools", "reasoning_effort", "chat_template_kwargs", "enable_thinking")
        for name in of_chats:
            if self.messages is None and getattr(self, name):
                raise refused(name, "is for messages; send messages, or leave it out")
        return self


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: Annotated[list[TokenId], listed(MAX_DETOKENIZED)]
