"""Checks a request's sampling options: logit biases, stop tokens, log-probabilities, prediction and service level."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from draft_node.http.ask.prompts import check_ids
from draft_node.http.schema.chat import ChatRequest, CompletionRequest, Generation, Slo
from draft_node.http.schema.errors import ApiError
from draft_node.service.levels import Levels
from draft_node.service.request import Wanted
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import LONGEST_S, SHORTEST_S, WINDOW, Objectives
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS, MAX_STOP_IDS, Otherwise
from goodspeed.wire.generation import TokenBias


def biases(request: Generation, vocab_size: int) -> tuple[TokenBias, ...]:
    """Returns the request's logit biases; ApiError for an id >= vocab_size."""
    given = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    check_ids(given, "logit_bias", vocab_size)
    return tuple(TokenBias(token, float(bias)) for token, bias in sorted(given.items()) if bias)


def stop_token_ids(request: Generation, vocab_size: int, eos_ids: Collection[int]) -> tuple[int, ...]:
    """Returns the request's stop tokens; ApiError for an id >= vocab_size, or for too many with eos_ids.

    eos_ids: further tokens that end the text.
    """
    given = tuple(dict.fromkeys(request.stop_token_ids or ()))
    check_ids(given, "stop_token_ids", vocab_size)
    num_own = len({*eos_ids, *given}) - len(given)
    if len(given) + num_own > MAX_STOP_IDS:
        what = f"stop_token_ids: {len(given)} in addition to {num_own} of the target's own are too many"
        ask = f"send at most {MAX_STOP_IDS - num_own}, or ignore_eos"
        raise ApiError(400, f"{what}; {ask}", param="stop_token_ids")
    return given


MAX_LOGPROBS_TOLD = 1 << 19
"""Most tokens and alternatives of a whole answer, without those of prompts: about 30 MB of JSON."""

MAX_LEFT_OUT = 256
"""Most tokens of a prediction beyond its text's max_tokens: predictions are indexed on the event loop, at the start."""


def echoed(texts: Sequence[Wanted], request: CompletionRequest) -> list[Wanted]:
    """Requests prompt log-probabilities for the texts of an echo; returns the changed texts.

    Clients that request a single token after such an echo discard the final entry and rely on its presence. So that
    token must not be EOS (min_tokens 1).
    """
    if request.logprobs is None:
        return list(texts)
    if (request.n or 1) > 1:
        raise ApiError(400, "n must be 1 with echo and logprobs; send several requests", param="n")
    num_tokens = sum(len(text.prompt) for text in texts)
    longest = MAX_PROMPT_LOGPROBS // (1 + request.logprobs)
    if num_tokens > longest:
        what = f"echo: log-probabilities of {num_tokens} tokens with {request.logprobs} alternatives each are too many"
        raise ApiError(400, f"{what}; ask for at most {longest}, or for fewer alternatives", param="echo")
    least = [max(text.min_tokens, int(text.max_tokens == 1)) for text in texts]
    return [
        replace(one, num_prompt_logprobs=request.logprobs, min_tokens=n) for one, n in zip(texts, least, strict=True)
    ]


def check_told(texts: Sequence[Wanted], request: ChatRequest | CompletionRequest) -> None:
    """ApiError if a whole answer would have log-probabilities of too many tokens and alternatives. Not for streams."""
    num_told = sum(text.max_tokens * (1 + text.num_logprobs) for text in texts if text.num_logprobs is not None)
    if num_told > MAX_LOGPROBS_TOLD and not request.stream:
        what = f"logprobs: {num_told} tokens and alternatives are more than one answer's limit of {MAX_LOGPROBS_TOLD}"
        ask = "ask for fewer tokens, choices or alternatives, or send stream: true"
        raise ApiError(400, f"{what}; {ask}", param="logprobs")


def most_told(request: ChatRequest, num_logprobs: int) -> int:
    """Returns the most tokens of each choice of a whole answer with so many alternatives per token."""
    return MAX_LOGPROBS_TOLD // ((request.n or 1) * (1 + num_logprobs))


def predicted(texts: Sequence[Wanted], expected: tuple[int, ...], request: ChatRequest) -> list[Wanted]:
    """Adds the expected output as a source of drafts, unless the node drafts nothing; returns the changed texts.

    Truncates a long prediction to max_tokens plus `MAX_LEFT_OUT`, a margin for parts that the text omits.
    """
    asked = request.own
    if asked.drafter in ("model", "none") or asked.speculate is False or asked.max_draft == 0:
        what = "prediction: it is a source of drafts, but goodspeed excludes such drafts; leave out one of them"
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
"""Headers with objectives in milliseconds, as in the Kubernetes inference gateway."""


def asked_slo(
    request: ChatRequest | CompletionRequest, levels: Levels, headers: Mapping[str, str]
) -> tuple[Objectives | None, Otherwise]:
    """Returns the texts' service level, and the action if it cannot be promised.

    The level comes from `goodspeed.slo`, `service_tier` or headers; else it is the tier named default, if any.
    """
    own = request.own
    tier = request.service_tier if isinstance(request, ChatRequest) else None
    ways: dict[str, Any] = {
        "goodspeed.slo": own.slo,
        "service_tier": tier if tier not in ("auto", "default") else None,
        next((name for name in (TTFT, TPOT) if name in headers), TTFT): _of_headers(headers),
    }
    told = [name for name, value in ways.items() if value is not None]
    if len(told) > 1:
        raise ApiError(400, f"{told[0]} and {told[1]} request two service levels; send one of them", param=told[1])
    try:
        found = _level(ways[told[0]], levels) if told else levels.default
    except RequestRefused as error:
        raise ApiError(400, f"{told[0]}: {error.what}", param=told[0], code=error.code) from None
    if own.otherwise is not None and found is None:
        what = "goodspeed.otherwise needs a service level; send goodspeed.slo, too, or leave it out"
        raise ApiError(400, what, param="goodspeed.otherwise")
    return found, own.otherwise or "best_effort"


def _level(asked: str | Slo | Objectives, levels: Levels) -> Objectives:
    if isinstance(asked, str):
        return levels.tier(asked)
    if isinstance(asked, Slo):
        given = asked.ttft_ms, asked.tpot_ms, asked.thinking_tpot_ms
        ttft_s, tpot_s, thinking_s = (None if one is None else one / 1000 for one in given)
        window = WINDOW if asked.tpot_window is None else asked.tpot_window
        asked = Objectives(ttft_s, tpot_s, tpot_window=window, thinking_tpot_s=thinking_s)
    return levels.allowed(asked)


def _of_headers(headers: Mapping[str, str]) -> Objectives | None:
    found = Objectives(_header(headers, TTFT), _header(headers, TPOT))
    return None if found.ttft_s is None and found.tpot_s is None else found


def _header(headers: Mapping[str, str], name: str) -> float | None:
    """Returns a header's milliseconds in seconds; None if the header is missing."""
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
