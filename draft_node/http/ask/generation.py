"""Converts a request to one `Wanted` per prompt and choice."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from draft_node.config import DraftConfig
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.forms import form_of, form_with_tools
from draft_node.http.ask.options import check_free, options_of
from draft_node.http.ask.prompts import (
    asked_tokens,
    check_within_reach,
    decoded,
    encode_chat,
    encode_prediction,
    encoded,
    max_tokens_of,
    name_of_max_tokens,
    prompts_of,
)
from draft_node.http.ask.sampling import asked_slo, biases, check_told, echoed, most_told, predicted, stop_token_ids
from draft_node.http.schema.chat import ChatRequest, CompletionRequest, Extension, Generation
from draft_node.http.schema.errors import ApiError
from draft_node.parsing.formats import Formats
from draft_node.service.request import Wanted, drafting
from draft_node.service.service import Service
from goodspeed.serving.defaults import SamplingRequest
from goodspeed.wire.fields import Drafter
from goodspeed.wire.generation import Constraint, TokenBias

DEFAULT_MAX_TOKENS, DEFAULT_CHAT_TOKENS = 16, 4096
"""Default max_tokens of a completion, as in the OpenAI API, and of a chat.

A chat needs room for thinking and JSON, which are worthless if cut; the model ends most chats sooner.
"""

MAX_SEED = (1 << 63) - 1

MAX_PROMPTS = 64
"""Most prompts in one request."""

MAX_CHOICES = 16
"""Most choices per prompt."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All texts of one request, in order of prompts, then choices."""

    texts: list[Wanted]
    num_prompt_tokens: int
    draft_fingerprint: str = ""  # matters under the ratio rule, where texts depend on the draft model
    returns_token_ids: bool = False
    n: int = 1  # choices per prompt
    echoes: Sequence[str] = ()  # of a completion: prefix of each text; "": no echo
    is_echo: bool = False
    is_only_echo: bool = False  # max_tokens 0: only the prompts are returned

    @property
    def formats(self) -> Formats:
        """Formats of calls and reasoning, the same for all answers."""
        return self.texts[0].parser.formats


async def of_completion(request: CompletionRequest, caller: Caller) -> Batch:
    service, user = caller.service, caller.user
    caller.model_of(request)
    _check_n(request)
    prompts = prompts_of(request)
    if len(prompts) > MAX_PROMPTS:
        what = f"prompt holds {len(prompts)} prompts; send at most {MAX_PROMPTS} in one request"
        raise ApiError(400, what, param="prompt")
    check_within_reach(service)
    form = await form_of(request.structured_outputs, None, service, user, ignore_eos=request.ignore_eos)
    ids = [await encoded(prompt, service, user) for prompt in prompts]
    max_tokens = max_tokens_of(request, DEFAULT_MAX_TOKENS, ids, service)
    texts = _wanted(request, caller, ids, max_tokens, request.logprobs, form)
    echoes = [""] * len(prompts)
    if request.echo:
        texts = echoed(texts, request)
        echoes = [await decoded(prompt, service, user) for prompt in prompts]
    return replace(
        _batch(request, service, texts, ids),
        echoes=[echo for echo in echoes for _ in range(request.n or 1)],
        is_echo=bool(request.echo),
        is_only_echo=request.max_tokens == 0,
    )


async def of_chat(request: ChatRequest, caller: Caller) -> Batch:
    service, user = caller.service, caller.user
    caller.model_of(request)
    _check_n(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true; send both, or neither", param="top_logprobs")
    num_logprobs = (request.top_logprobs or 0) if request.logprobs else None
    options = options_of(request, service)
    check_within_reach(service)
    form = await form_of(
        request.structured_outputs, request.response_format, service, user, ignore_eos=request.ignore_eos
    )
    ids = [await encode_chat(request.messages, service, caller.turns, options.inputs)]
    default = caller.config.max_tokens or DEFAULT_CHAT_TOKENS
    if num_logprobs is not None and not request.stream:
        default = min(default, most_told(request, num_logprobs))
    max_tokens = max_tokens_of(request, default, ids, service)
    of = "response_format" if request.structured_outputs is None else "structured_outputs"
    kept = await form_with_tools(form, options, service, ids[0], caller.turns, param=of, ignore_eos=request.ignore_eos)
    check_free(options, is_constrained=kept is not None)
    texts = _wanted(request, caller, ids, max_tokens, num_logprobs, kept)
    parser = options.parser
    if kept is not None:
        parser = replace(parser, formats=parser.formats.under_grammar(has_text=form is None))
    texts = [replace(text, parser=parser) for text in texts]
    if request.prediction is not None:
        expected = await encode_prediction(request.prediction, ids[0], service, user)
        texts = predicted(texts, expected, request)
    return _batch(request, service, texts, ids)


def _batch(request: Generation, service: Service, texts: list[Wanted], ids: Sequence[tuple[int, ...]]) -> Batch:
    num_prompt_tokens = sum(map(len, ids))
    return Batch(texts, num_prompt_tokens, service.draft_fingerprint, bool(request.return_token_ids), request.n or 1)


def choice_seed(seed: int, choice: int) -> int:
    """Returns a choice's seed: the request's own for choice 0, a hash of seed and choice for others."""
    if choice == 0 and seed >= 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {choice}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) & MAX_SEED


def _check_n(request: Generation) -> None:
    if (request.n or 1) > MAX_CHOICES:
        raise ApiError(400, f"n must be at most {MAX_CHOICES}", param="n")


def _wanted(
    request: ChatRequest | CompletionRequest,
    caller: Caller,
    ids: Sequence[tuple[int, ...]],
    max_tokens: Sequence[int],
    num_logprobs: int | None,
    form: Constraint | None,
) -> list[Wanted]:
    """Builds one `Wanted` per prompt and choice."""
    service, config, is_chat = caller.service, caller.config, isinstance(request, ChatRequest)
    drafter, max_draft = _drafting(request.own, config)
    slo, otherwise = asked_slo(request, service.levels, caller.headers)
    says = service.defaults(chat=is_chat)
    alike = partial(
        Wanted,
        ignore_eos=bool(request.ignore_eos),
        stop_token_ids=stop_token_ids(request, service.vocab_size, () if request.ignore_eos else service.eos_ids),
        is_chat=is_chat,
        num_logprobs=num_logprobs,
        max_draft=max_draft,
        drafter=drafter,
        slo=slo,
        otherwise=otherwise,
        constraint=form,
        prefix_cache=request.own.prefix_cache is not False,
        user=caller.user,
        priority=request.priority or 0,
        verification=config.verification,
        restarts=request.own.on_target_change == "restart",
        target=service.target_fingerprint,
    )
    bias, min_tokens = biases(request, service.vocab_size), _min_tokens(request, max_tokens)
    texts = []
    for (prompt, most), choice in product(zip(ids, max_tokens, strict=True), range(request.n or 1)):
        asked = _sampling_request(request, choice, bias).filled(config.node_sampling)
        own = asked.resolve(says)
        chosen = partial(alike, sampling=own.sampling, stop=own.stop, logit_rules=own.rules)
        texts.append(chosen(prompt=prompt, max_tokens=most, min_tokens=min(min_tokens, most), resolve=asked.resolve))
    check_told(texts, request)
    return texts


def _min_tokens(request: ChatRequest | CompletionRequest, max_tokens: Sequence[int]) -> int:
    """Returns min_tokens; ApiError 400 if it exceeds max_tokens, which the context may have reduced for some texts."""
    least, asked = request.min_tokens or 0, asked_tokens(request)
    if least > (min(max_tokens) if asked is None else max(asked, 1)):
        raise ApiError(400, f"min_tokens must not be more than {name_of_max_tokens(request)}", param="min_tokens")
    return least


def _sampling_request(request: Generation, choice: int, bias: tuple[TokenBias, ...]) -> SamplingRequest:
    return SamplingRequest(
        seed=secrets.randbits(63) if request.seed is None else choice_seed(request.seed, choice),
        temperature=request.temperature,
        top_k=None if request.top_k is None else max(request.top_k, 0),
        top_p=request.top_p,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        adds_stops=not request.ignore_eos,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        min_p=request.min_p,
        logit_bias=bias,
    )


def _drafting(extension: Extension, config: DraftConfig) -> tuple[Drafter, int]:
    """Returns drafter and longest draft; ("none", 0) disables drafting. ApiError 400 for contradictory options."""
    asked, says_none = extension.drafter, extension.speculate is False or extension.max_draft == 0
    if asked == "model" and not config.has_model:
        what = "goodspeed.drafter: this draft node has no model; send auto, ngram or none"
        raise ApiError(400, what, param="goodspeed.drafter")
    if says_none and asked in ("model", "ngram"):
        what = f"goodspeed.drafter: {asked} drafts, but the request also disables drafts; drop one of the two"
        raise ApiError(400, what, param="goodspeed.drafter")
    longest = config.max_draft if extension.max_draft is None else min(extension.max_draft, config.max_draft)
    return drafting("none" if says_none else asked or config.drafter, longest)
