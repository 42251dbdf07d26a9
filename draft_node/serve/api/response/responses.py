"""Bodies of HTTP responses: OpenAI's formats, with `usage.goodspeed` in addition. Plain data."""

from typing import Literal

from pydantic import BaseModel

from goodspeed.wire.fields import DraftSource

FinishReason = Literal["stop", "length"]


class KeptSlo(BaseModel):
    """What became of what the request was to keep: the longest times of its texts, and whether all kept it.

    `promised`: whether the verify node promised it for all of them; null where it promises nothing, or where what it
    said was lost.
    """

    tier: str | None
    ttft_ms: float | None
    tpot_ms: float | None
    attained: bool
    promised: bool | None


class Speculation(BaseModel):
    """What drafting did for this request: verdicts, drafted tokens that were verified, and those that were accepted.

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


class PromptTokensDetails(BaseModel):
    """Tokens of the prompt that the target had in memory already."""

    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    goodspeed: Speculation | None = None


class Logprobs(BaseModel):
    """Each list has one entry for each token of a completion; a part of a character is written `bytes:\\x..`."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


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


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    goodspeed: Marked | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: Usage


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    goodspeed: Marked | None = None


class ChatChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


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


def json_with(frame: BaseModel, name: str, members: str) -> str:
    """The JSON of an answer whose list `name` is empty, with these members in it: JSON already, with commas between.

    `name` has to be the first list of that name.
    """
    empty = f'"{name}":[]'
    return frame.model_dump_json(exclude_unset=True).replace(empty, f"{empty[:-1]}{members}]", 1)
