"""Schemas of a response: its items and usage."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from goodspeed.serving.web.bodies import Metrics, Speculation, Usage

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class MessageItem(BaseModel):
    type: Literal["message"] = "message"
    id: str
    status: Status
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class ReasoningItem(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status
    summary: list[Any]
    content: list[ReasoningText]
    encrypted_content: None = None  # reasoning is returned in plain text


class ToolCallItem(BaseModel):
    """Members of every call."""

    id: str
    status: Status
    call_id: str


class NamedCallItem(ToolCallItem):
    name: str
    namespace: str | None = Field(default=None, exclude_if=lambda namespace: namespace is None)


class CallItem(NamedCallItem):
    type: Literal["function_call"] = "function_call"
    arguments: str


class CustomCallItem(NamedCallItem):
    type: Literal["custom_tool_call"] = "custom_tool_call"
    input: str


class SearchCallItem(ToolCallItem):
    type: Literal["tool_search_call"] = "tool_search_call"
    execution: Literal["client"] = "client"
    arguments: dict[str, Any]


OutputItem = MessageItem | ReasoningItem | CallItem | CustomCallItem | SearchCallItem


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    goodspeed: Speculation | None

    @classmethod
    def of(cls, usage: Usage) -> "ResponseUsage":
        """Converts a chat completion's usage to a response's."""
        details, cached = usage.completion_tokens_details, usage.prompt_tokens_details
        num_reasoning = details.reasoning_tokens if details is not None else None
        return cls(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputDetails(
                cached_tokens=0 if cached is None else cached.cached_tokens, cache_write_tokens=0
            ),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputDetails(reasoning_tokens=num_reasoning or 0),
            total_tokens=usage.total_tokens,
            goodspeed=usage.goodspeed,
        )


class Failure(BaseModel):
    code: str
    message: str


class Incomplete(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseBody(BaseModel):
    """A response: the request's parameters, and the output so far."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    system_fingerprint: str | None = None
    metrics: Metrics | None = None
    instructions: str | None
    max_output_tokens: int | None
    temperature: float
    top_p: float
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    text: dict[str, Any]
    reasoning: dict[str, Any]
    truncation: Literal["disabled"] = "disabled"
    store: Literal[False] = False
    background: Literal[False] = False
    previous_response_id: None = None
    service_tier: str | None
    metadata: dict[str, str]
    user: str | None
