"""Checks of what a request asks for beside its text: rules for logits, log-probabilities, service level, priority."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from draft_node.http.errors import ApiError
from draft_node.http.requests import ChatRequest, CompletionRequest, Extension, Generation, Slo
from draft_node.service.request import Wanted
from draft_node.service.state import Levels
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import LONGEST_S, SHORTEST_S, Objectives
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS, MAX_STOP_IDS, Otherwise
from goodspeed.wire.generation import TokenBias


def biases(request: Generation, vocab_size: int) -> tuple[TokenBias, ...]:
    """Returns what is added to tokens' logits; ApiError for an id outside a known (not 0) vocabulary."""
    given = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    _check_ids(given, "logit_bias", vocab_size)
    return tuple(TokenBias(token, float(bias)) for token, bias in sorted(given.items()) if bias)


def stop_token_ids(request: Generation, vocab_size: int, eos_ids: Collection[int]) -> tuple[int, ...]:
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


def echoed(texts: Sequence[Wanted], request: CompletionRequest) -> list[Wanted]:
    """Returns the texts with the log-probabilities that an echo tells of their prompts.

    Whoever asks for one token after such an echo leaves the last entry out, and counts on it: that token is not an end
    of sequence.
    """
    if request.logprobs is None:
        return list(texts)
    if (request.n or 1) > 1:
        raise ApiError(400, "n must be 1 where echo tells log-probabilities; send several requests", param="n")
    num_tokens = sum(len(text.prompt) for text in texts)
    longest = MAX_PROMPT_LOGPROBS // (1 + request.logprobs)
    if num_tokens > longest:
        what = f"echo: {num_tokens} tokens with {request.logprobs} alternatives each are too many to be told of"
        raise ApiError(400, f"{what}; ask for at most {longest}, or for fewer alternatives", param="echo")
    least = [max(text.min_tokens, int(text.max_tokens == 1)) for text in texts]
    return [
        replace(one, num_prompt_logprobs=request.logprobs, min_tokens=n) for one, n in zip(texts, least, strict=True)
    ]


def check_told(texts: Sequence[Wanted], request: ChatRequest | CompletionRequest) -> None:
    """ApiError where a whole answer would tell of too many tokens and alternatives; a stream has them as they come."""
    num_told = sum(text.max_tokens * (1 + text.num_logprobs) for text in texts if text.num_logprobs is not None)
    if num_told > MAX_LOGPROBS_TOLD and not request.stream:
        what = f"logprobs: {num_told} tokens and alternatives are more than the {MAX_LOGPROBS_TOLD} of one answer"
        ask = "ask for fewer tokens, choices or alternatives, or send stream: true"
        raise ApiError(400, f"{what}; {ask}", param="logprobs")


def predicted(texts: Sequence[Wanted], expected: tuple[int, ...], request: ChatRequest) -> list[Wanted]:
    """The texts, with drafts from what is expected of them, too, unless the node drafts nothing.

    Of a long prediction the beginning counts, as much as the text may have, and more for what the text leaves out.
    """
    asked = request.goodspeed or Extension()
    if asked.drafter in ("model", "none") or asked.speculate is False or asked.max_draft == 0:
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


TTFT, TPOT = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Headers with objectives in milliseconds, those of the Kubernetes inference gateway."""


def asked_slo(
    request: ChatRequest | CompletionRequest, levels: Levels, headers: Mapping[str, str]
) -> tuple[Objectives | None, Otherwise]:
    """Returns the service level of the texts, and what becomes of them where it cannot be promised.

    `goodspeed.slo`, `service_tier` or headers say it; else the tier called default, if there is one.
    """
    own = request.goodspeed or Extension()
    tier = request.service_tier if isinstance(request, ChatRequest) else None
    ways: dict[str, Any] = {
        "goodspeed.slo": own.slo,
        "service_tier": tier if tier not in ("auto", "default") else None,
        next((name for name in (TTFT, TPOT) if name in headers), TTFT): _of_headers(headers),
    }
    told = [name for name, value in ways.items() if value is not None]
    if len(told) > 1:
        raise ApiError(400, f"{told[0]} and {told[1]} ask for two levels; send one of them", param=told[1])
    try:
        found = _level(ways[told[0]], levels) if told else levels.default
    except RequestRefused as error:
        raise ApiError(400, f"{told[0]}: {error.what}", param=told[0]) from None
    if own.otherwise is not None and found is None:
        what = "goodspeed.otherwise is for texts that ask for a service level; send goodspeed.slo, too, or leave it out"
        raise ApiError(400, what, param="goodspeed.otherwise")
    return found, own.otherwise or "best_effort"


def _level(asked: str | Slo | Objectives, levels: Levels) -> Objectives:
    if isinstance(asked, str):
        return levels.tier(asked)
    if isinstance(asked, Slo):
        ttft_s, tpot_s = (None if one is None else one / 1000 for one in (asked.ttft_ms, asked.tpot_ms))
        asked = Objectives(ttft_s, tpot_s)
    return levels.allowed(asked)


def _of_headers(headers: Mapping[str, str]) -> Objectives | None:
    found = Objectives(_header(headers, TTFT), _header(headers, TPOT))
    return None if found.ttft_s is None and found.tpot_s is None else found


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
