"""Bodies of answers, for the server and for `goodspeed chat`: OpenAI's formats, with `usage.goodspeed` in addition."""

from collections.abc import Iterable
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from goodspeed.wire.fields import DraftSource

T = TypeVar("T")
Lazy: TypeAlias = Iterable[T]
"""A list that may be long. Its members are made while it is written, which happens once: they are never all held,
and between them other threads have the interpreter."""

FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]


class KeptSlo(BaseModel):
    """The request's service level: the longest times of its texts, and whether all kept it.

    `promised`: whether the verify node promised it for all of them; null where it promises nothing, or where what it
    said was lost.
    """

    tier: str | None
    ttft_ms: float | None
    tpot_ms: float | None
    attained: bool
    promised: bool | None


class Speculation(BaseModel):
    """The drafting of this request: verdicts, drafted tokens that were verified, and those that were accepted.

    `drafted_by` and `accepted_by` say what drafted them: the draft model, this node's n-gram index, or the verify node
    itself. `local` tokens the draft model wrote alone, while the verify node was away.
    """

    rounds: int
    drafted: int
    accepted: int
    local: int
    drafted_by: dict[DraftSource, int]
    accepted_by: dict[DraftSource, int]
    slo: KeptSlo | None = None


class CompletionDetails(BaseModel):
    """`reasoning_tokens`: those that the model thinks with, markers included. Of a prediction: as many of its tokens as
    n-gram drafts brought into the text, and the others."""

    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class PromptTokensDetails(BaseModel):
    """Tokens of the prompt that the target had in its KV cache already."""

    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    goodspeed: Speculation | None = None


class Logprobs(BaseModel):
    """Each list has one entry for each token of a completion; a part of a character is written `bytes:\\x..`."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: Lazy[dict[str, float] | None]
    text_offset: list[int]


class SpeculativeDecoding(BaseModel):
    """vLLM's shape. `acceptance_histogram[n]`: drafts of which n tokens were accepted. Steps with drafts count."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int


class Metrics(BaseModel):
    speculative_decoding: SpeculativeDecoding


class MarkedSpan(BaseModel):
    text: str
    accepted: bool
    local: bool | None = None


class Marked(BaseModel):
    """The origin of a text, as far as it is asked for, or is not the target's own.

    `spans`, of a chunk: accepted drafts, the target itself, or the draft model alone; joined, they are the text.
    `local`, of a chunk: some of it was written by the draft model alone. `local_tokens`, of a text that is complete.
    """

    spans: list[MarkedSpan] | None = None
    local: bool | None = None
    local_tokens: int | None = None


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishReason | None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    goodspeed: Marked | None = None


class Completion(BaseModel):
    """Whole, or a chunk of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[CompletionChoice]
    usage: Usage | None = None
    metrics: Metrics | None = None


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
    """A call in a stream; it comes whole, when it is complete."""

    index: int


class AssistantMessage(BaseModel):
    """`content` is null where there are calls and nothing else; what is thought has both names that clients read."""

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
    goodspeed: Marked | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None
    metrics: Metrics | None = None


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
    goodspeed: Marked | None = None


class ChatChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
    metrics: Metrics | None = None


class Models(BaseModel):
    """The models behind the served name; the target is null while the verify node is out of reach."""

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
    """The target is null while the verify node is out of reach, and the draft model writes alone."""

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
    """Body of every answer but 200."""

    error: ErrorDetail


def json_with(frame: BaseModel, name: str, members: str) -> str:
    """The JSON of an answer whose list `name` is empty, with these members in it: JSON already, with commas between.

    `name` has to be the first list of that name.
    """
    empty = f'"{name}":[]'
    return frame.model_dump_json(exclude_unset=True).replace(empty, f"{empty[:-1]}{members}]", 1)
