"""Checks of what a request asks for beside its text: rules for logits, log-probabilities, service level, priority."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from draft_node.http.errors import ApiError
from draft_node.http.requests import ChatRequest, CompletionRequest, Generation, RuleParameters, Slo
from draft_node.service.request import Wanted
from draft_node.service.service import Service
from draft_node.service.writer import Levels
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import LONGEST_S, SHORTEST_S, Objectives
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS, MAX_STOP_IDS, Otherwise
from goodspeed.wire.generation import TokenBias


def biases(request: RuleParameters, vocab_size: int) -> tuple[TokenBias, ...]:
    """What is added to which token's logit; ApiError for an id outside the vocabulary, if its size is known (not 0)."""
    given = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    _check_ids(given, "logit_bias", vocab_size)
    return tuple(TokenBias(token, float(bias)) for token, bias in sorted(given.items()) if bias)


def stop_token_ids(request: RuleParameters, vocab_size: int, eos_ids: Collection[int]) -> tuple[int, ...]:
    """The request's tokens that end the text; ApiError for one outside the vocabulary, if its size is known (not 0).

    eos_ids: those that end it as well. ApiError too where they are too many together.
    """
    given = tuple(dict.fromkeys(request.stop_token_ids or ()))
    _check_ids(given, "stop_token_ids", vocab_size)
    num_own = len({*eos_ids, *given}) - len(given)
    if len(given) + num_own > MAX_STOP_IDS:
        what = f"stop_token_ids: {len(given)} beside {num_own} of the target's own are too many"
        ask = f"send at most {MAX_STOP_IDS - num_own}, or ignore_eos"
        raise ApiError(400, f"{what}; {ask}", param="stop_token_ids")
    return given


def _check_ids(tokens: Iterable[int], param: str, vocab_size: int) -> None:
    most = max(tokens, default=0)
    if vocab_size and most >= vocab_size:
        what = f"{param}: {most} is no token id; they go from 0 to {vocab_size - 1}"
        raise ApiError(400, what, param=param, code="vocabulary")


MAX_LOGPROBS_TOLD = 1 << 19
"""Tokens and alternatives that a whole answer may tell of beside its prompts: about 30 MB of JSON."""

MAX_LEFT_OUT = 256
"""Tokens of a prediction beyond those that its text may have: it is read before the text begins, on the event loop."""


def of_prompts(
    texts: Sequence[Wanted], request: ChatRequest | CompletionRequest, *, echoed: int | None = None
) -> list[Wanted]:
    """The texts, with what is to be told of their prompts. echoed: alternatives told of each token of an echo.

    A prompt is read for the first of its choices alone, and told of with each.
    """
    wanted, param = request.prompt_logprobs, "prompt_logprobs" if request.prompt_logprobs is not None else "echo"
    if wanted is not None and request.stream:
        raise ApiError(400, "prompt_logprobs is not served with stream: true; leave out one of them", param=param)
    if wanted is None and echoed is None:
        return list(texts)
    num_top = max(wanted or 0, echoed or 0)
    num_tokens = sum(len(text.prompt) for text in texts)
    if num_tokens * (1 + num_top) > MAX_PROMPT_LOGPROBS:
        longest = MAX_PROMPT_LOGPROBS // (1 + num_top)
        what = f"{param}: {num_tokens} tokens with {num_top} alternatives each are too many to be told of"
        ask = f"ask for at most {longest} tokens, those of all prompts and choices together, or for fewer alternatives"
        raise ApiError(400, f"{what}; {ask}", param=param)
    num_choices = request.n or 1
    read = [None if i % num_choices else num_top for i in range(len(texts))]
    return [_of_prompt(text, top, is_scored=echoed is not None) for text, top in zip(texts, read, strict=True)]


def check_told(texts: Sequence[Wanted], request: ChatRequest | CompletionRequest) -> None:
    """ApiError where a whole answer would tell of too many tokens and alternatives; a stream has them as they come."""
    num_told = sum(text.max_tokens * (1 + text.num_logprobs) for text in texts if text.num_logprobs is not None)
    if num_told > MAX_LOGPROBS_TOLD and not request.stream:
        what = f"logprobs: {num_told} tokens and alternatives are more than the {MAX_LOGPROBS_TOLD} of one answer"
        ask = "ask for fewer tokens, choices or alternatives, or send stream: true"
        raise ApiError(400, f"{what}; {ask}", param="logprobs")


def _of_prompt(text: Wanted, num_top: int | None, *, is_scored: bool) -> Wanted:
    """is_scored: whoever asks for one token after an echo with log-probabilities leaves the last entry out, and counts
    on it: the token is not an end of sequence then."""
    min_tokens = max(text.min_tokens, int(is_scored and text.max_tokens == 1))
    return replace(text, num_prompt_logprobs=num_top, min_tokens=min_tokens)


def predicted(texts: Sequence[Wanted], expected: tuple[int, ...], request: ChatRequest) -> list[Wanted]:
    """The texts, with drafts from what is expected of them, too, unless the node drafts nothing.

    Of a long prediction the beginning counts, as much as the text may have, and more for what the text leaves out.
    """
    asked = request.goodspeed.drafter if request.goodspeed is not None else None
    if asked in ("model", "none") or _asks_for_none(request):
        what = "prediction: drafts come from it, and goodspeed asks for none like these; leave out one of them"
        raise ApiError(400, what, param="prediction")
    return [
        replace(
            text,
            prediction=expected[: text.max_tokens + MAX_LEFT_OUT],
            drafter=text.drafter if text.drafter != "model" else "auto",
        )
        for text in texts
    ]


def _asks_for_none(request: Generation) -> bool:
    asked = request.goodspeed
    return asked is not None and (asked.speculate is False or asked.max_draft == 0)


def checked_priority(request: Generation, service: Service) -> int:
    if request.priority and not service.knows_priorities:
        what = "priority: this node's --order takes places away by its own rule; leave it out, or send 0"
        raise ApiError(400, what, param="priority")
    return request.priority or 0


NEUTRAL = ("auto", "default")
"""Values of `service_tier` that ask for nothing."""

TTFT, TPOT = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Headers with objectives in milliseconds."""


class Asked(NamedTuple):
    """What a request's texts are to keep, and what becomes of them where that cannot be promised."""

    slo: Objectives | None
    otherwise: Otherwise


def asked(request: ChatRequest | CompletionRequest, levels: Levels, headers: Mapping[str, str]) -> Asked:
    """What the request asks for; the tier called default for one that asks for nothing."""
    slo = request.goodspeed.slo if request.goodspeed is not None else None
    service_tier = request.service_tier if isinstance(request, ChatRequest) else None
    named = service_tier if service_tier not in NEUTRAL else None
    told = [name for name in (TTFT, TPOT) if name in headers]
    ways = ["goodspeed.slo"] * (slo is not None) + ["service_tier"] * (named is not None) + told[:1]
    if len(ways) > 1:
        raise ApiError(400, f"{ways[0]} and {ways[1]} ask for two levels; send one of them", param=ways[1])
    found: Objectives | None
    try:
        if slo is not None:
            found = _of(slo, levels)
        elif told:
            found = levels.allowed(Objectives(_header(headers, TTFT), _header(headers, TPOT)))
        else:
            found = levels.tier(named) if named is not None else levels.default
    except RequestRefused as error:
        raise ApiError(400, f"{ways[0]}: {error.what}", param=ways[0]) from None
    return Asked(found, _otherwise(request, found))


def _otherwise(request: ChatRequest | CompletionRequest, found: Objectives | None) -> Otherwise:
    otherwise = request.goodspeed.otherwise if request.goodspeed is not None else None
    if otherwise is not None and found is None:
        what = "goodspeed.otherwise is for texts that ask for a service level; send goodspeed.slo, too, or leave it out"
        raise ApiError(400, what, param="goodspeed.otherwise")
    return otherwise or "best_effort"


def _of(slo: Slo, levels: Levels) -> Objectives:
    if slo.tier is not None:
        return levels.tier(slo.tier)
    ttft_s, tpot_s = (None if one is None else one / 1000 for one in (slo.ttft_ms, slo.tpot_ms))
    return levels.allowed(Objectives(ttft_s, tpot_s))


def _header(headers: Mapping[str, str], name: str) -> float | None:
    """Seconds; None where the header is not there."""
    if name not in headers:
        return None
    try:
        seconds = float(headers[name][:32]) / 1000
    except ValueError:
        seconds = 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        what = f"the header {name} must be milliseconds from {1000 * SHORTEST_S:g} to {1000 * LONGEST_S:.0f}"
        raise ApiError(400, what, param=name)
    return seconds
