"""From a request to the texts it wants: one `Wanted` for each prompt and choice. All that can be refused is, here.

Nothing has been started yet when this is done.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from draft_node.config import DraftConfig
from draft_node.serve.api.errors import ApiError
from draft_node.serve.api.schemas import ChatRequest, CompletionRequest, Extension, Generation, Message
from draft_node.serve.service import Service, VerifyAway, Wanted
from draft_node.text.encoding import num_chat_chars
from goodspeed.errors import PromptError
from goodspeed.node.defaults import SamplingRequest

DEFAULT_MAX_TOKENS = 16
"""Of a completion that does not say; OpenAI's."""

MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Wish:
    """Everything that one request wants: choices in order, prompt by prompt."""

    texts: list[Wanted]
    num_prompt_tokens: int
    echoes: list[str]  # what comes before each text
    draft_fingerprint: str = ""  # under the ratio rule the texts depend on the draft model, too


async def of_completion(request: CompletionRequest, service: Service, config: DraftConfig, user: str) -> Wish:
    check_model(request.model, config)
    _check_n(request, config)
    if request.echo and request.logprobs is not None:
        raise ApiError(400, "echo and logprobs are not served together; ask for one of them", param="echo")
    prompts = _prompts(request)
    if len(prompts) > config.http_max_prompts:
        what = f"prompt holds {len(prompts)} prompts; send at most {config.http_max_prompts} in one request"
        raise ApiError(400, what, param="prompt")
    _check_within_reach(service)
    ids = [await _encoded(prompt, service, user) for prompt in prompts]
    max_tokens = _max_tokens(request, DEFAULT_MAX_TOKENS, ids, service)
    texts = _wanted(request, ids, max_tokens, request.logprobs, service, config)
    echoes = [""] * len(prompts)
    if request.echo:
        echoes = [await _text(prompt, service, user) for prompt in prompts]
    return Wish(
        texts, sum(map(len, ids)), [echo for echo in echoes for _ in range(request.n or 1)], service.draft_fingerprint
    )


async def of_chat(request: ChatRequest, service: Service, config: DraftConfig, user: str) -> Wish:
    check_model(request.model, config)
    _check_n(request, config)
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true; send both, or neither", param="top_logprobs")
    num_logprobs = (request.top_logprobs or 0) if request.logprobs else None
    _check_within_reach(service)
    ids = [await encode_chat(request.messages, service, user)]
    max_tokens = _max_tokens(request, config.max_tokens, ids, service)
    texts = _wanted(request, ids, max_tokens, num_logprobs, service, config, is_chat=True)
    return Wish(texts, len(ids[0]), [""] * len(texts), service.draft_fingerprint)


def check_model(name: str | None, config: DraftConfig) -> None:
    if name is not None and name != config.served_model_name:
        what = f"the model {name[:80]!a} is not served here; ask for {config.served_model_name!r}"
        raise ApiError(404, what, param="model", code="model_not_found")


async def encode_prompt(prompt: str, service: Service, user: str) -> tuple[int, ...]:
    _check_chars(len(prompt), "prompt", service)
    return await service.encode(prompt, user)


async def encode_chat(messages: Sequence[Message], service: Service, user: str) -> tuple[int, ...]:
    turns = [_turn(message) for message in messages]
    _check_chars(num_chat_chars(turns), "messages", service)
    try:
        return await service.encode_chat(turns, user)
    except PromptError as error:
        raise ApiError(400, str(error), param="messages", code="prompt") from None


def _turn(message: Message) -> dict[str, str]:
    """As chat templates know it: one text, and `system` for what OpenAI has renamed `developer`."""
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": _content(message), **({"name": message.name} if message.name else {})}


def _content(message: Message) -> str:
    return message.content if isinstance(message.content, str) else "".join(part.text for part in message.content)


def choice_seed(seed: int, choice: int) -> int:
    """Choice 0 has the request's own seed; the others have theirs from it."""
    if choice == 0 and seed >= 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {choice}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) & MAX_SEED


def _check_n(request: Generation, config: DraftConfig) -> None:
    if (request.n or 1) > config.http_max_n:
        raise ApiError(400, f"n must be at most {config.http_max_n}", param="n")


def _prompts(request: CompletionRequest) -> list[str | list[int]]:
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


async def _encoded(prompt: str | list[int], service: Service, user: str) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return await encode_prompt(prompt, service, user)
    if service.vocab_size and max(prompt) >= service.vocab_size:
        what = f"prompt: {max(prompt)} is no token id; they go from 0 to {service.vocab_size - 1}"
        raise ApiError(400, what, param="prompt", code="vocabulary")
    return tuple(prompt)


async def _text(prompt: str | list[int], service: Service, user: str) -> str:
    return prompt if isinstance(prompt, str) else await service.decode(prompt, user)


def _check_chars(num_chars: int, param: str, service: Service) -> None:
    """Before the work: a tokenizer takes seconds and a gigabyte for some million characters."""
    if num_chars > service.max_chars:
        what = f"{param}: {num_chars} characters do not fit into the context; at most {service.max_chars} can"
        raise ApiError(400, what, param=param, code="context_length_exceeded")


def _check_within_reach(service: Service) -> None:
    """Before the work, too."""
    if not service.context_len:
        raise VerifyAway("verify_away", service.absence)


def _max_tokens(request: Generation, default: int, ids: Sequence[tuple[int, ...]], service: Service) -> list[int]:
    """For each prompt. What is asked for must fit into the context; the default is cut to it."""
    _check_within_reach(service)  # it may have gone while prompts were encoded
    asked = _one_of(request)
    left = [service.context_len - len(prompt) for prompt in ids]
    least = min(left)
    if least < (asked or 1):
        raise _too_long(request, service.context_len, service.context_len - least, asked)
    return [asked or min(default, room) for room in left]


def _too_long(request: Generation, context_len: int, num_tokens: int, asked: int | None) -> ApiError:
    """The error for a prompt of so many tokens, with what is asked for beyond it."""
    param, verb = ("messages", "take") if isinstance(request, ChatRequest) else ("prompt", "takes")
    taken = f"the context has {context_len} tokens, and the {param} {verb} {num_tokens} of them"
    if asked and num_tokens < context_len:
        name = _name_of_max_tokens(request)
        what = f"{name} must be at most {context_len - num_tokens}: {taken}"
        return ApiError(400, what, param=name, code="context_length_exceeded")
    return ApiError(400, f"{param} must be shorter: {taken}", param=param, code="context_length_exceeded")


def _name_of_max_tokens(request: Generation) -> str:
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


def _wanted(
    request: Generation,
    ids: Sequence[tuple[int, ...]],
    max_tokens: Sequence[int],
    num_logprobs: int | None,
    service: Service,
    config: DraftConfig,
    *,
    is_chat: bool = False,
) -> list[Wanted]:
    """One for each prompt and choice."""
    if any((request.min_tokens or 0) > most for most in max_tokens):
        raise ApiError(400, f"min_tokens must not be more than {_name_of_max_tokens(request)}", param="min_tokens")
    says, target = service.defaults(chat=is_chat), service.target_fingerprint
    texts = []
    for prompt, most in zip(ids, max_tokens, strict=True):
        for choice in range(request.n or 1):
            seed = secrets.randbits(63) if request.seed is None else choice_seed(request.seed, choice)
            asked = _sampling_request(request, seed)
            sampling, stop = asked.resolve(says)
            texts.append(
                Wanted(
                    prompt=prompt,
                    sampling=sampling,
                    max_tokens=most,
                    min_tokens=request.min_tokens or 0,
                    ignore_eos=bool(request.ignore_eos),
                    stop=stop,
                    is_chat=is_chat,
                    num_logprobs=num_logprobs,
                    max_draft=_max_draft(request.goodspeed, config),
                    verification=config.verification,
                    restarts=request.goodspeed is not None and request.goodspeed.on_target_change == "restart",
                    target=target,
                    resolve=asked.resolve,
                )
            )
    return texts


def _sampling_request(request: Generation, seed: int) -> SamplingRequest:
    return SamplingRequest(
        seed=seed,
        temperature=request.temperature,
        top_k=None if request.top_k is None else max(request.top_k, 0),
        top_p=request.top_p,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        adds_stops=not request.ignore_eos,
    )


def _max_draft(extension: Extension | None, config: DraftConfig) -> int:
    if extension is None:
        return config.max_draft
    if extension.speculate is False:
        return 0
    return config.max_draft if extension.max_draft is None else min(extension.max_draft, config.max_draft)
