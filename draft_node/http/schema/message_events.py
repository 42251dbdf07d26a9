"""Schemas of a message of Anthropic's API, as an answer, and of its errors."""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from goodspeed.serving.web.bodies import Speculation, Usage

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextBlock(BaseModel):
    type: Literal["text"]
    text: str


class ThinkingBlock(BaseModel):
    """`signature`: a constant. Clients send thinking back only if it has a signature."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(BaseModel):
    """`input_tokens`: the whole prompt, also the part found in the target's KV cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int] | None = None
    goodspeed: Speculation | None = None

    @classmethod
    def begun(cls, num_prompt_tokens: int) -> "MessageUsage":
        """Returns the usage before the first token."""
        return cls(
            input_tokens=num_prompt_tokens, cache_creation_input_tokens=0, cache_read_input_tokens=0, output_tokens=0
        )

    @classmethod
    def of(cls, usage: Usage) -> "MessageUsage":
        """Converts a chat completion's usage to a message's."""
        found = cls.begun(usage.prompt_tokens)
        found.output_tokens, found.goodspeed = usage.completion_tokens, usage.goodspeed
        details = usage.completion_tokens_details
        if details is not None and details.reasoning_tokens is not None:
            found.output_tokens_details = {"thinking_tokens": details.reasoning_tokens}
        return found


class MessageBody(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(BaseModel):
    input_tokens: int


class Failure(BaseModel):
    type: str
    message: str
    details: dict[str, str] | None = None


class FailureBody(BaseModel):
    """Body of every answer with a status other than 200, and of the event that ends a stream that breaks."""

    type: Literal["error"]
    error: Failure
