"""HTTP response bodies: OpenAI's formats, extended by `usage.goodspeed`."""

from collections.abc import Iterable
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from goodspeed.wire.fields import DraftSource

T = TypeVar("T")
Lazy: TypeAlias = Iterable[T]
"""A possibly long list, serialized once. Its members are made one by one during serialization, so they are never all in
memory, and other threads can run in between."""

FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]


class KeptSlo(BaseModel):
    """The request's service level: the longest TTFT and TPOT of its texts, and whether all texts attained it.

    `tpot_ms` is a mean over a text, `slowest_tpot_ms` over its slowest window, which the TPOT is for.
    `promised`: whether the verify node promised it for all texts; null if it promises nothing or its answer was lost.
    """

    tier: str | None
    ttft_ms: float | None
    tpot_ms: float | None
    slowest_tpot_ms: float | None
    attained: bool
    promised: bool | None


class Speculation(BaseModel):
    """Speculation statistics of this request: verdicts, verified drafted tokens, and accepted ones, also by source (the
    draft model, this node's n-gram index, or the verify node)."""

    rounds: int
    drafted: int
    accepted: int
    drafted_by: dict[DraftSource, int]
    accepted_by: dict[DraftSource, int]
    slo: KeptSlo | None = None


class CompletionDetails(BaseModel):
    """`reasoning_tokens`: tokens of the model's thinking, with its markers."""

    reasoning_tokens: int


class PromptTokensDetails(BaseModel):
    """`cached_tokens`: prompt tokens that were in the target's KV cache."""

    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    goodspeed: Speculation | None = None


class Logprobs(BaseModel):
    """Lists with one entry per token of a completion; a token with part of a character is written `bytes:\\x..`."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: Lazy[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishReason | None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class Completion(BaseModel):
    """A whole completion, or a chunk of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: Lazy[TokenLogprob]
    refusal: None = None


class CalledFunction(BaseModel):
    """`arguments` is a JSON object as text."""

    name: str
    arguments: str


class MadeCall(BaseModel):
    id: str
    type: Literal["function"]
    function: CalledFunction


class MadeCallDelta(MadeCall):
    """A tool call in a stream, sent whole once it is complete."""

    index: int


class AssistantMessage(BaseModel):
    """`content` is null if there are only tool calls. The thinking is in both fields that clients use."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[MadeCall] | None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    token_ids: list[int] | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[MadeCallDelta] | None = None


class ChatChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    token_ids: list[int] | None = None


class ChatChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None


class Models(BaseModel):
    """The models behind the served name; the target is null while the verify node is unreachable."""

    target: str | None
    target_fingerprint: str | None
    draft: str
    draft_fingerprint: str


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    goodspeed: Models


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]


class Status(BaseModel):
    status: str


class Ready(Status):
    target: str | None
    target_fingerprint: str | None


class Version(BaseModel):
    version: str


class Tokenized(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: None = None


class Detokenized(BaseModel):
    prompt: str


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Body of every response with a status other than 200."""

    error: ErrorDetail


def json_with(frame: BaseModel, name: str, members: str) -> str:
    """Serializes a body whose list `name` is empty, with `members` inserted into the list.

    name: the first list of that name in the body. members: JSON, separated by commas.
    """
    empty = f'"{name}":[]'
    return frame.model_dump_json(exclude_unset=True).replace(empty, f"{empty[:-1]}{members}]", 1)
