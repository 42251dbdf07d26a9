"""What a request may ask for beside its text: log-probabilities of prompts, drafts from a prediction, a priority.

Knows nothing about how prompts are encoded, or what a text is sampled by.
"""

from collections.abc import Sequence
from dataclasses import replace

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.schemas import ChatRequest, CompletionRequest, Generation
from draft_node.serve.service import Wanted
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS

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
