"""How a request is answered once it is known what it wants: whole, or as a stream. The same for both endpoints.

What an answer looks like is its `Shape`'s affair (`completions.py`, `chat.py`).
"""

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from fastapi import Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.core.actions import by_source
from draft_node.core.counts import total
from draft_node.parsing.parts import Call
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.schemas import Generation, StreamOptions
from draft_node.serve.api.request.wanted import Wish
from draft_node.serve.api.response import marks, texts
from draft_node.serve.api.response.metrics import metrics_of
from draft_node.serve.api.response.responses import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    Completion,
    CompletionChoice,
    CompletionDetails,
    KeptSlo,
    PromptTokensDetails,
    Speculation,
    Usage,
    json_with,
)
from draft_node.serve.api.response.stream import EventStream, begun
from draft_node.serve.service import Begun, Ended, Piece, Service, Token
from draft_node.text.fair_queue import FairQueue
from draft_node.text.tokens import PromptTokens
from goodspeed.node.web import user_of
from goodspeed.slo.kept import Kept

Chunk = ChatChunk | Completion

LARGE = 1 << 11
"""Tokens and alternatives from which an answer is written on another thread: the event loop has sessions to drive."""


@dataclass(slots=True)
class Choice:
    """One text so far."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    ended: Ended | None = None
    target_fingerprint: str | None = None
    num_local: int = 0  # tokens so far that the draft model wrote alone
    prompt: PromptTokens | None = None  # with log-probabilities, once they are there

    def take(self, item: Begun | Piece | Ended) -> None:
        match item:
            case Begun():
                self.text, self.thinking, self.calls, self.tokens, self.num_local = "", "", [], [], 0
                self.prompt = None
                self.target_fingerprint = item.target_fingerprint
            case Piece():
                self.text += item.text
                self.thinking += item.thinking
                self.calls += [piece.call for piece in item.parts if piece.call is not None]
                self.tokens += item.tokens
                self.num_local += sum(token.local for token in item.tokens)
                self.prompt = item.prompt or self.prompt
            case Ended():
                self.ended, self.num_local = item, item.num_local


class Shape(Protocol):
    """What one endpoint's answers look like."""

    def frame(self, choices: Sequence[Choice], usage: Usage) -> ChatCompletion | Completion: ...
    def told(self, index: int, choice: Choice) -> ChatChoice | CompletionChoice: ...
    def beginnings(self) -> Iterable[Chunk]: ...
    def piece(self, index: int, piece: Piece) -> Chunk | None: ...
    def ending(self, index: int, ended: Ended) -> Chunk: ...
    def last(self) -> Chunk: ...


async def answer(
    request: Request,
    body: Generation,
    wish: Wish,
    shape: Shape,
    service: Service,
    config: DraftConfig,
    answers: FairQueue,
) -> Response:
    """Starts the texts, all or none, and answers with them; they end when their user leaves.

    answers: where large ones are written.
    """
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true; send both, or neither", param="stream_options")
    mark_accepted = body.goodspeed is not None and bool(body.goodspeed.mark_accepted)
    if mark_accepted and not body.stream:
        raise ApiError(
            400, "goodspeed.mark_accepted needs stream: true; send both, or neither", param="goodspeed.mark_accepted"
        )
    if body.stream and body.goodspeed is not None and body.goodspeed.on_target_change == "restart":
        what = "goodspeed.on_target_change: a stream cannot take back what it has sent; use fail, or leave out stream"
        raise ApiError(400, what, param="goodspeed.on_target_change")
    texts.check_room(service, config, len(wish.texts), body.n or 1)
    if body.stream:
        chunks = _chunks(service, wish, shape, body.stream_options or StreamOptions(), mark_accepted=mark_accepted)
        return EventStream(await begun(request.receive, chunks))
    choices = await texts.unless_gone(request.receive, _collect(service, wish))
    return Response(await to_json(wish, shape, choices, answers, user_of(request.scope)), media_type="application/json")


async def to_json(wish: Wish, shape: Shape, choices: Sequence[Choice], answers: FairQueue, user: str) -> str:
    """The whole answer as JSON."""
    size = _size(wish, choices)
    if size < LARGE:
        return _whole(wish, shape, choices)
    return await answers.run(user, size, lambda: _whole(wish, shape, choices))


def _size(wish: Wish, choices: Sequence[Choice]) -> int:
    """How many entries an answer has for its texts' tokens, and for those of prompts: themselves and alternatives."""
    num_top = max((text.num_prompt_logprobs or 0 for text in wish.texts), default=0)
    told = sum(len(choice.prompt.ids) for choice in choices if choice.prompt is not None)
    written = (
        len(choice.tokens) * (1 + (text.num_logprobs or 0)) for choice, text in zip(choices, wish.texts, strict=True)
    )
    return told * (1 + num_top) + sum(written)


def _whole(wish: Wish, shape: Shape, choices: Sequence[Choice]) -> str:
    """Choice by choice: between them others have the interpreter, and one at a time is in memory other than as JSON."""
    frame = shape.frame(choices, usage_of(wish, choices))
    frame.system_fingerprint = system_fingerprint_of(wish, choices)
    if (metrics := metrics_of(choices)) is not None:
        frame.metrics = metrics
    written = ",".join(_written(shape.told(i, choice), choice) for i, choice in enumerate(choices))
    return json_with(frame, "choices", written)


def _written(told: ChatChoice | CompletionChoice, choice: Choice) -> str:
    marks.on_whole(told, choice.ended)
    return told.model_dump_json(exclude_unset=True)


async def _collect(service: Service, wish: Wish) -> list[Choice]:
    choices = [Choice() for _ in wish.texts]
    async with aclosing(texts.write(service, wish.texts)) as items:
        async for index, item in items:
            choices[index].take(_without_text(item) if wish.is_only_echo else item)
    for index, choice in enumerate(choices):
        choice.prompt = choice.prompt or choices[index - index % wish.num_choices].prompt
    return choices


async def _chunks(
    service: Service, wish: Wish, shape: Shape, options: StreamOptions, *, mark_accepted: bool
) -> AsyncGenerator[Chunk, None]:
    choices = [Choice() for _ in wish.texts]
    is_begun = False
    async with (
        aclosing(texts.write(service, wish.texts)) as written,
        aclosing(texts.with_prompts(written, wish.num_choices if wish.is_read_once else 1)) as items,
    ):
        async for index, arrived in items:
            item = _without_text(arrived) if wish.is_only_echo else arrived
            choices[index].take(item)
            if isinstance(item, Begun):
                continue
            new = [] if is_begun else list(shape.beginnings())
            is_begun = True
            for part in item.each() if isinstance(item, Piece) else [item]:
                chunk = shape.piece(index, part) if isinstance(part, Piece) else shape.ending(index, part)
                if chunk is not None:
                    marks.on_chunk(chunk.choices[0], part, spans=mark_accepted)
                    new.append(chunk)
            for each in new:
                each.system_fingerprint = system_fingerprint_of(wish, [choices[index]])
                if options.continuous_usage_stats:
                    each.usage = usage_of(wish, choices)
                elif options.include_usage:
                    each.usage = None
                yield each
    if options.include_usage:
        last = shape.last()
        last.usage = usage_of(wish, choices)
        last.system_fingerprint = system_fingerprint_of(wish, choices)
        if (metrics := metrics_of(choices)) is not None:
            last.metrics = metrics
        yield last


def _without_text(item: Begun | Piece | Ended) -> Begun | Piece | Ended:
    """A text of which only the prompt is wanted: the one token that no text is without is not told."""
    match item:
        case Piece():
            return Piece("", (), prompt=item.prompt)
        case Ended():
            return replace(item, reason="length", stop=None, num_tokens=0)
    return item


def system_fingerprint_of(wish: Wish, choices: Sequence[Choice]) -> str | None:
    """Which models the text depends on: the target, and under the ratio rule the draft model too.

    None where not all of it is from one target: some of it the draft model wrote alone, or choices differ.
    """
    targets = {choice.target_fingerprint for choice in choices}
    if len(targets) != 1 or None in targets or any(choice.num_local for choice in choices):
        return None
    parts = [*targets, *([wish.draft_fingerprint] if wish.texts[0].verification == "ratio" else [])]
    return "_".join(["fp", *map(str, parts)])


def usage_of(wish: Wish, choices: Sequence[Choice]) -> Usage:
    """So far; what drafting did is known of texts that are complete."""
    num_tokens = sum(choice.ended.num_tokens if choice.ended else len(choice.tokens) for choice in choices)
    all_of = total(*(choice.ended.statistics for choice in choices if choice.ended))
    told = Speculation(
        rounds=all_of.num_rounds,
        drafted=all_of.num_drafted,
        accepted=all_of.num_accepted,
        local=sum(choice.num_local for choice in choices),
        drafted_by=by_source(all_of.drafted),
        accepted_by=by_source(all_of.accepted),
    )
    kept = [choice.ended.kept for choice in choices if choice.ended and choice.ended.kept]
    if kept and len(kept) == len(choices):
        told.slo = _slo(kept)  # left out where nothing was asked for, and before all is known
    usage = Usage(
        prompt_tokens=wish.num_prompt_tokens,
        completion_tokens=num_tokens,
        total_tokens=wish.num_prompt_tokens + num_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=_num_cached(wish, choices)),
        goodspeed=told,
    )
    details = _details(wish, choices, all_of.accepted["ngram"])
    if details.model_fields_set:
        usage.completion_tokens_details = details
    return usage


def _details(wish: Wish, choices: Sequence[Choice], num_ngram: int) -> CompletionDetails:
    """num_ngram: tokens that n-gram drafts brought into the texts."""
    details = CompletionDetails()
    if wish.thinks:
        details.reasoning_tokens = sum(choice.ended.num_thinking for choice in choices if choice.ended)
    if num_predicted := sum(len(text.prediction) for text in wish.texts):
        details.accepted_prediction_tokens = min(num_ngram, num_predicted)
        details.rejected_prediction_tokens = num_predicted - details.accepted_prediction_tokens
    return details


def _num_cached(wish: Wish, choices: Sequence[Choice]) -> int:
    """Tokens of the prompts that were not read: of each prompt by the choice for which the fewest were in memory.

    The other choices find what that one has read.
    """
    fewest: dict[tuple[int, ...], int] = {}
    for wanted, choice in zip(wish.texts, choices, strict=True):
        num_cached = choice.ended.statistics.num_cached if choice.ended else 0
        fewest[wanted.prompt] = min(fewest.get(wanted.prompt, num_cached), num_cached)
    return sum(fewest.values())


def _slo(kept: Sequence[Kept]) -> KeptSlo:
    """What is told of a request with objectives: its tier, the longest times of its texts, and whether all attained."""
    told = [one.described() for one in kept]
    longest = {
        name: max((one[name] for one in told if one[name] is not None), default=None) for name in ("ttft_ms", "tpot_ms")
    }
    promised = [one["promised"] for one in told]
    return KeptSlo(
        tier=told[0]["tier"],
        **longest,
        attained=all(one["attained"] for one in told),
        promised=None if None in promised else all(promised),
    )


def now() -> int:
    return int(time.time())
