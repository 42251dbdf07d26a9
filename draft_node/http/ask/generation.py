"""A completion or a chat becomes one `Generation` per prompt and choice, all checked together."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from draft_node.core.generation import Generation
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.chat_options import check_free, options_of
from draft_node.http.ask.prompts import check_ids, check_within_reach, encode_chat, encoded, max_tokens_of, prompts_of
from draft_node.http.ask.slo import asked_slo
from draft_node.http.ask.structured_outputs import constraint_of_answer, constraint_of_content
from draft_node.http.schema.chat import ChatRequest, CompletionRequest, TextRequest
from draft_node.http.schema.errors import ApiError, wrong
from draft_node.parsing.parser import ONLY_CONTENT, ParserSettings
from goodspeed.errors import RequestRefused
from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS, Drafter
from goodspeed.wire.generation import TokenBias

DEFAULT_MAX_TOKENS, DEFAULT_CHAT_TOKENS = 16, 4096
"""Default max_tokens of a completion, as in the OpenAI API, and of a chat.

A chat needs room for thinking and JSON, which are worthless if cut; the model ends most chats sooner.
"""

MAX_SEED = (1 << 63) - 1

MAX_PROMPTS = 64
"""Most prompts in one request."""

MAX_LOGPROBS_TOLD = 1 << 19
"""Most tokens and alternatives of a whole answer, without those of prompts: about 30 MB of JSON."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All texts of one request, in order of prompts, then choices."""

    texts: list[Generation]
    draft_fingerprint: str = ""  # matters under the ratio rule, where texts depend on the draft model
    returns_token_ids: bool = False
    n: int = 1  # choices per prompt
    parser: ParserSettings = ONLY_CONTENT  # how to parse the texts
    echoes: Sequence[str] = ()  # of a completion: prefix of each text; "": no echo
    is_echo: bool = False
    is_only_echo: bool = False  # max_tokens 0: only the prompts are returned

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(text.prompt) for text in self.texts[:: self.n])


async def of_completion(request: CompletionRequest, caller: Caller) -> Batch:
    """Translates a completion: one text per prompt and choice. Raises ApiError that names a wrong parameter."""
    service = caller.service
    caller.model_of(request.model)
    prompts = prompts_of(request)
    if len(prompts) > MAX_PROMPTS:
        raise wrong(f"prompt holds {len(prompts)} prompts; send at most {MAX_PROMPTS} in one request")
    check_within_reach(service)
    form = await constraint_of_content(request, caller)
    ids = [await encoded(prompt, caller) for prompt in prompts]
    max_tokens = max_tokens_of(request, DEFAULT_MAX_TOKENS, ids, service)
    num_told = request.logprobs if request.echo else None
    if num_told is not None:
        _check_echo(request, sum(map(len, ids)), num_told)
    fields: dict[str, Any] = {"constraint": form, "num_logprobs": request.logprobs, "num_prompt_logprobs": num_told}
    texts = _generations(request, caller, ids, max_tokens, **fields)
    echoes = [""] * len(prompts)
    if request.echo:
        echoes = [one if isinstance(one, str) else await service.tokenizer.decode(one, caller.user) for one in prompts]
    return Batch(
        texts,
        service.draft_fingerprint,
        returns_token_ids=bool(request.return_token_ids),
        n=request.n or 1,
        echoes=[echo for echo in echoes for _ in range(request.n or 1)],
        is_echo=bool(request.echo),
        is_only_echo=request.max_tokens == 0,
    )


async def of_chat(request: ChatRequest, caller: Caller) -> Batch:
    """Translates a chat: one text per choice. Raises ApiError that names a wrong parameter."""
    service = caller.service
    caller.model_of(request.model)
    if request.top_logprobs and not request.logprobs:
        raise wrong("top_logprobs needs logprobs: true; send both, or neither")
    num_logprobs = (request.top_logprobs or 0) if request.logprobs else None
    options = options_of(request, service.chats)
    check_within_reach(service)
    form = await constraint_of_content(request, caller, request.response_format)
    ids = [await encode_chat(request.messages, caller, options.inputs)]
    default = caller.config.max_tokens or DEFAULT_CHAT_TOKENS
    if num_logprobs is not None and not request.stream:
        default = min(default, MAX_LOGPROBS_TOLD // ((request.n or 1) * (1 + num_logprobs)))
    max_tokens = max_tokens_of(request, default, ids, service)
    kept = await constraint_of_answer(form, options, request, ids[0], caller)
    check_free(options, is_constrained=kept is not None)
    parser = options.parser
    if kept is not None:
        parser = replace(parser, formats=parser.formats.under_grammar(has_text=form is None))
    fields: dict[str, Any] = {"constraint": kept, "num_logprobs": num_logprobs, "is_chat": True}
    texts = _generations(request, caller, ids, max_tokens, **fields)
    return Batch(texts, service.draft_fingerprint, bool(request.return_token_ids), request.n or 1, parser)


def choice_seed(seed: int, choice: int) -> int:
    """Returns a choice's seed: the request's own for choice 0, a hash of seed and choice for others."""
    if choice == 0 and seed >= 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {choice}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) & MAX_SEED


def _generations(
    request: ChatRequest | CompletionRequest,
    caller: Caller,
    ids: Sequence[tuple[int, ...]],
    max_tokens: Sequence[int],
    *,
    num_prompt_logprobs: int | None = None,
    **fields: Any,
) -> list[Generation]:
    """Builds one `Generation` per prompt and choice.

    fields: further fields of `Generation`.
    """
    service, config, own = caller.service, caller.config, request.own
    drafter, max_draft = _drafting(request, caller)
    slo, otherwise = asked_slo(request, service.slo_tiers)
    asked = _asked(request, service.vocab_size).filled(config.node_sampling)
    texts = []
    for (prompt, most), choice in product(zip(ids, max_tokens, strict=True), range(request.n or 1)):
        seed = secrets.randbits(63) if request.seed is None else choice_seed(request.seed, choice)
        # After an echo with logprobs clients drop the final entry, and rely on it: a single token must not be EOS.
        must = 1 if num_prompt_logprobs is not None and most == 1 else 0
        try:
            text = service.generation(
                prompt,
                replace(asked, seed=seed),
                most,
                num_prompt_logprobs=num_prompt_logprobs,
                min_tokens=max(min(request.min_tokens or 0, most), must),
                max_draft=max_draft,
                drafter=drafter,
                slo=slo,
                otherwise=otherwise,
                prefix_cache=own.prefix_cache is not False,
                user=caller.user,
                verification=config.verification,
                **fields,
            )
        except RequestRefused as error:
            raise ApiError(400, error.what, param="stop_token_ids", code=error.code) from None
        texts.append(text)
    _check_told(texts, request)
    return texts


def _asked(request: TextRequest, vocab_size: int) -> SamplingRequest:
    """Returns a request's sampling, with any seed; ApiError for a token id >= vocab_size."""
    biases = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    check_ids(request.stop_token_ids or (), "stop_token_ids", vocab_size)
    check_ids(biases, "logit_bias", vocab_size)
    return SamplingRequest(
        seed=0,
        temperature=request.temperature,
        top_k=None if request.top_k is None else max(request.top_k, 0),
        top_p=request.top_p,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        stop_ids=tuple(request.stop_token_ids or ()),
        ignore_eos=bool(request.ignore_eos),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        min_p=request.min_p,
        logit_bias=tuple(TokenBias(token, float(bias)) for token, bias in sorted(biases.items()) if bias),
    )


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_echo(request: CompletionRequest, num_tokens: int, num_logprobs: int) -> None:
    """ApiError if too many log-probabilities of prompts are asked for."""
    if (request.n or 1) > 1:
        raise wrong("n must be 1 with echo and logprobs; send several requests")
    longest = MAX_PROMPT_LOGPROBS // (1 + num_logprobs)
    if num_tokens > longest:
        what = f"echo: log-probabilities of {num_tokens} tokens with {num_logprobs} alternatives each are too many"
        raise ApiError(400, f"{what}; ask for at most {longest}, or for fewer alternatives", param="echo")


def _check_told(texts: Sequence[Generation], request: TextRequest) -> None:
    """ApiError if a whole answer would have log-probabilities of too many tokens and alternatives. Not for streams."""
    num_told = sum(text.max_tokens * (1 + text.num_logprobs) for text in texts if text.num_logprobs is not None)
    if num_told > MAX_LOGPROBS_TOLD and not request.stream:
        what = f"logprobs: {num_told} tokens and alternatives are more than one answer's limit of {MAX_LOGPROBS_TOLD}"
        ask = "ask for fewer tokens, choices or alternatives, or send stream: true"
        raise ApiError(400, f"{what}; {ask}", param="logprobs")


def _drafting(request: TextRequest, caller: Caller) -> tuple[Drafter, int]:
    """Returns drafter and longest draft; ApiError 400 for a drafter that the node does not have."""
    own, config = request.own, caller.config
    if own.drafter == "model" and not config.has_model:
        raise wrong("goodspeed.drafter: this draft node has no model; send auto, ngram or none")
    return own.drafter or config.drafter, min(own.max_draft or config.max_draft, config.max_draft)
