"""Encodes prompts, refuses those beyond the context, and limits max_tokens to what is left of it."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from draft_node.http.ask.body import check_elements
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.chat_options import turn_calls
from draft_node.http.schema.chat import ChatRequest, CompletionRequest, Message
from draft_node.http.schema.content_parts import text_of
from draft_node.http.schema.errors import ApiError, wrong
from draft_node.service.async_tokenizer import num_chat_chars
from draft_node.service.service import Service
from goodspeed.engine.tokenizing.text import Inputs
from goodspeed.errors import PromptError, VerifyAway
from goodspeed.wire.fields import MAX_CONTEXT


async def encode_chat(messages: Sequence[Message], caller: Caller, inputs: Inputs) -> tuple[int, ...]:
    """Returns a conversation's token ids by its chat template; ApiError if too long or refused by the template."""
    chat, shown = await caller.run(partial(_chat_of, messages, caller.service, inputs))
    try:
        return await caller.service.tokenizer.encode_chat(chat, caller.user, shown)
    except PromptError as error:
        raise ApiError(400, str(error), param="messages", code="prompt") from None


def _chat_of(
    messages: Sequence[Message], service: Service, inputs: Inputs
) -> tuple[Sequence[Mapping[str, Any]], Inputs]:
    """Converts messages and inputs for the chat template; ApiError if they are too many or too long."""
    calls = [call.function.arguments.encode() for message in messages for call in message.tool_calls or ()]
    check_elements(*calls)  # JSON inside of the body's strings, not counted before
    chat = [_chat_message(message, f"messages.{i}", service) for i, message in enumerate(messages)]
    shown, inputs = service.chats.shown(chat, inputs)
    _check_chars(num_chat_chars(shown, inputs), "messages", service)
    return shown, inputs


def _chat_message(message: Message, where: str, service: Service) -> dict[str, Any]:
    """Converts a message for the chat template: joins text parts, and renames OpenAI's role `developer` to `system`.

    where: the message's dotted name, for errors.
    """
    if (message.role == "tool" or message.tool_calls) and not service.chats.takes_tools:
        param = f"{where}.{'role' if message.role == 'tool' else 'tool_calls'}"
        what = f"{param}: tools are not supported, since {service.chats.why_no_tools}; leave the message out"
        raise ApiError(400, what, param=param, code="unsupported_parameter")
    calls = {"tool_calls": turn_calls(message.tool_calls, where)} if message.tool_calls else {}
    others = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content or message.reasoning,
    }
    role = "system" if message.role == "developer" else message.role
    given = {name: value for name, value in others.items() if value}
    return {"role": role, "content": text_of(message.content), **given, **calls}


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """Returns the prompts of a request, each as text or token ids."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


async def encoded(prompt: str | list[int], caller: Caller) -> tuple[int, ...]:
    """Returns a prompt's token ids; ApiError if it is too long, or if an id is not in the vocabulary."""
    if isinstance(prompt, str):
        _check_chars(len(prompt), "prompt", caller.service)
        return await caller.service.tokenizer.encode(prompt, caller.user)
    check_ids(prompt, "prompt", caller.service.vocab_size)
    return tuple(prompt)


def check_ids(tokens: Collection[int], param: str, vocab_size: int) -> None:
    """Raises ApiError for an id that is not in the vocabulary. param: the parameter's name, for the error."""
    for token in (min(tokens, default=0), max(tokens, default=0)):
        if not 0 <= token < vocab_size:
            raise wrong(f"{param}: {token} is no token id; they go from 0 to {vocab_size - 1}", "vocabulary")


def _check_chars(num_chars: int, param: str, service: Service) -> None:
    """Refuses a long text before encoding: a tokenizer takes seconds and a gigabyte for some million characters."""
    most, context_len = service.max_chars, service.context_len
    if num_chars <= most:
        return
    if context_len:
        longest = most / context_len  # characters of a token
        raise _too_long(param, context_len, f"{math.ceil(num_chars / longest)} tokens at least")
    what = f"{param}: {num_chars} characters do not fit into the context; at most {most} can"
    raise ApiError(400, what, param=param, code="context_length_exceeded")


def check_within_reach(service: Service) -> None:
    """Refuses a request early if the verify node is away, since the context length is then unknown."""
    if not service.context_len:
        raise VerifyAway("verify_away", service.absence)


def max_tokens_of(
    request: ChatRequest | CompletionRequest, default: int, ids: Sequence[tuple[int, ...]], service: Service
) -> list[int]:
    """Returns each prompt's max_tokens, reduced to fit into the context; ApiError if a prompt does not fit.

    Also if the request contradicts itself: max_tokens by its two names, or min_tokens beyond them.
    """
    check_within_reach(service)  # the node may have gone while prompts were encoded
    old, new, least = request.max_tokens, request.max_completion_tokens, request.min_tokens or 0
    if old is not None and new is not None and old != new:
        what = "max_tokens and max_completion_tokens differ; send one of them"
        raise ApiError(400, what, param="max_completion_tokens")
    asked, name = (old, "max_tokens") if new is None or old is not None else (new, "max_completion_tokens")
    left = [service.context_len - len(prompt) for prompt in ids]
    if min(left) < 1:
        param = "messages" if isinstance(request, ChatRequest) else "prompt"
        raise _too_long(param, service.context_len, f"{service.context_len - min(left)} tokens")
    if asked == 0 and not (isinstance(request, CompletionRequest) and request.echo):
        raise wrong("max_tokens must be at least 1; 0 is for echo: true alone")
    if asked == 0 and least:
        raise wrong("min_tokens must not be more than max_tokens, which is 0")
    if least > (default if asked is None else asked):
        advice = "" if asked is not None else f", whose default is {default}; send it, too"
        raise wrong(f"min_tokens must not be more than {name}{advice}")
    return [min(default if asked is None else max(asked, 1), room, MAX_CONTEXT) for room in left]


def _too_long(param: str, context_len: int, length: str) -> ApiError:
    """Returns the error for a prompt beyond the context, in words by which agents know that they have to compact."""
    verb = "have" if param == "messages" else "has"
    what = f"This model's maximum context length is {context_len} tokens, but the {param} {verb} {length}"
    advice = f"reduce the length of the {param}, and leave room for an answer"
    return ApiError(400, f"{what}: {advice}", param=param, code="context_length_exceeded")
