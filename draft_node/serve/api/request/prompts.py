"""Prompts of requests as token ids, and how many tokens may follow them: both have to fit into the context.

What does not fit is refused before a tokenizer has the work. Knows nothing about sampling.
"""

from collections.abc import Sequence
from typing import Any

from draft_node.serve.api.request import elements
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.schemas import (
    ChatRequest,
    CompletionRequest,
    Generation,
    Message,
    Prediction,
    TextPart,
)
from draft_node.serve.api.request.tools import turn_calls
from draft_node.serve.service import Service, VerifyAway
from draft_node.text.encoding import num_chat_chars
from goodspeed.engine.tokenizing.chat_inputs import NOTHING, Inputs
from goodspeed.errors import PromptError


async def encode_prompt(prompt: str, service: Service, user: str) -> tuple[int, ...]:
    _check_chars(len(prompt), "prompt", service)
    return await service.encode(prompt, user)


async def encode_chat(
    messages: Sequence[Message], service: Service, user: str, inputs: Inputs = NOTHING
) -> tuple[int, ...]:
    calls = [call.function.arguments.encode() for message in messages for call in message.tool_calls or ()]
    elements.check(*calls)  # JSON inside of the body's strings, where it was not counted
    turns = [_turn(message, f"messages.{i}", service) for i, message in enumerate(messages)]
    _check_chars(num_chat_chars(turns, inputs), "messages", service)
    try:
        return await service.encode_chat(turns, user, inputs)
    except PromptError as error:
        raise ApiError(400, str(error), param="messages", code="prompt") from None


def _turn(message: Message, where: str, service: Service) -> dict[str, Any]:
    """Returns a message for a chat template: one text, and `system` for what OpenAI has renamed `developer`.

    where: its dotted name, for errors.
    """
    if (message.role == "tool" or message.tool_calls) and not service.chats.takes_tools:
        param = f"{where}.{'role' if message.role == 'tool' else 'tool_calls'}"
        what = f"{param}: tools are not supported, since this model's chat template knows none; leave the message out"
        raise ApiError(400, what, param=param, code="unsupported_parameter")
    calls = {"tool_calls": turn_calls(message.tool_calls, where)} if message.tool_calls else {}
    others = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content or message.reasoning,
    }
    role = "system" if message.role == "developer" else message.role
    given = {name: value for name, value in others.items() if value}
    return {"role": role, "content": _content(message), **given, **calls}


def _content(message: Message) -> str:
    """Returns the text of a message; one that only calls tools may have none."""
    return _text(message.content)


def _text(content: str | list[TextPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


async def encoded(prompt: str | list[int], service: Service, user: str) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return await encode_prompt(prompt, service, user)
    if service.vocab_size and max(prompt) >= service.vocab_size:
        what = f"prompt: {max(prompt)} is no token id; they go from 0 to {service.vocab_size - 1}"
        raise ApiError(400, what, param="prompt", code="vocabulary")
    return tuple(prompt)


async def encode_prediction(
    prediction: Prediction, prompt: tuple[int, ...], service: Service, user: str
) -> tuple[int, ...]:
    """Token ids of what the answer to a conversation is expected to be."""
    text = _text(prediction.content)
    _check_chars(len(text), "prediction", service)
    return await service.encode_answer(prompt, text, user) if text else ()


async def decoded(prompt: str | list[int], service: Service, user: str) -> str:
    return prompt if isinstance(prompt, str) else await service.decode(prompt, user)


def _check_chars(num_chars: int, param: str, service: Service) -> None:
    """Refuses a long text before the work: a tokenizer takes seconds and a gigabyte for some million characters."""
    if num_chars > service.max_chars:
        what = f"{param}: {num_chars} characters do not fit into the context; at most {service.max_chars} can"
        raise ApiError(400, what, param=param, code="context_length_exceeded")


def check_within_reach(service: Service) -> None:
    """Refuses a request before the work while no context length is known, since the verify node is away."""
    if not service.context_len:
        raise VerifyAway("verify_away", service.absence)


def max_tokens_of(request: Generation, default: int, ids: Sequence[tuple[int, ...]], service: Service) -> list[int]:
    """Returns max_tokens for each prompt: what is asked for must fit into the context, the default is cut to it."""
    check_within_reach(service)  # it may have gone while prompts were encoded
    asked = _one_of(request)
    left = [service.context_len - len(prompt) for prompt in ids]
    least = min(left)
    if least < (asked or 1):
        raise _too_long(request, service.context_len, service.context_len - least, asked)
    if asked == 0 and not (isinstance(request, CompletionRequest) and request.echo):
        raise ApiError(400, "max_tokens must be at least 1; 0 is for echo: true alone", param="max_tokens")
    if asked == 0 and request.min_tokens:
        raise ApiError(400, "min_tokens must not be more than max_tokens, which is 0", param="min_tokens")
    return [min(default, room) if asked is None else max(asked, 1) for room in left]


def _too_long(request: Generation, context_len: int, num_tokens: int, asked: int | None) -> ApiError:
    """The error for a prompt of so many tokens, with what is asked for beyond it."""
    param, verb = ("messages", "take") if isinstance(request, ChatRequest) else ("prompt", "takes")
    taken = f"the context has {context_len} tokens, and the {param} {verb} {num_tokens} of them"
    if asked and num_tokens < context_len:
        name = name_of_max_tokens(request)
        what = f"{name} must be at most {context_len - num_tokens}: {taken}"
        return ApiError(400, what, param=name, code="context_length_exceeded")
    return ApiError(400, f"{param} must be shorter: {taken}", param=param, code="context_length_exceeded")


def name_of_max_tokens(request: Generation) -> str:
    """The name by which the request sent it; the older one if it sent both, or neither."""
    only_new = request.max_tokens is None and request.max_completion_tokens is not None
    return "max_completion_tokens" if only_new else "max_tokens"


def _one_of(request: Generation) -> int | None:
    """max_tokens by either of its names."""
    old, new = request.max_tokens, request.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise ApiError(
            400, "max_tokens and max_completion_tokens differ; send one of them", param="max_completion_tokens"
        )
    return new if new is not None else old
