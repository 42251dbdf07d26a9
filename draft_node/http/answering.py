"""Answers a request once it is known what it wants: whole, or as a stream."""

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Protocol

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from draft_node.config import DraftConfig
from draft_node.http import streams
from draft_node.http.choices import Choice, mark_chunk, mark_whole, metrics_of, system_fingerprint_of, usage_of
from draft_node.http.errors import ApiError
from draft_node.http.requests import Extension, Generation, StreamOptions
from draft_node.http.responses.requests import ResponsesRequest
from draft_node.http.streams import EventStream, begun, event_of
from draft_node.http.wanted import Wish
from draft_node.service.answer import Piece
from draft_node.service.queues import FairQueue
from draft_node.service.request import Begun, Ended
from draft_node.service.service import Service
from draft_node.service.tokens import PromptTokens
from goodspeed.serving.web import user_of
from goodspeed.serving.web.bodies import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    Completion,
    CompletionChoice,
    Usage,
    json_with,
)

Chunk = ChatChunk | Completion

LARGE = 1 << 11
"""Tokens and alternatives from which an answer is written on another thread: the event loop has sessions to drive."""


class Shape(Protocol):
    """What one endpoint's answers look like."""

    def frame(self, choices: Sequence[Choice], usage: Usage) -> ChatCompletion | Completion: ...
    def told(self, index: int, choice: Choice) -> ChatChoice | CompletionChoice: ...
    def beginnings(self) -> Iterable[Chunk]: ...
    def piece(self, index: int, piece: Piece) -> Chunk | None: ...
    def ending(self, index: int, ended: Ended) -> Chunk: ...
    def last(self) -> Chunk: ...


def check_stream(body: Generation | ResponsesRequest) -> None:
    """Refuses what a stream alone can have, and what it cannot."""
    own = body.goodspeed or Extension()
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true; send both, or neither", param="stream_options")
    if own.mark_accepted and not body.stream:
        what = "goodspeed.mark_accepted needs stream: true; send both, or neither"
        raise ApiError(400, what, param="goodspeed.mark_accepted")
    if body.stream and own.on_target_change == "restart":
        what = "goodspeed.on_target_change: a stream cannot take back what it has sent; use fail, or leave out stream"
        raise ApiError(400, what, param="goodspeed.on_target_change")


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
    check_stream(body)
    streams.check_room(service, config, len(wish.texts), body.n or 1)
    if body.stream:
        streamed = Stream(
            wish,
            shape,
            body.stream_options or StreamOptions(),
            mark_accepted=(body.goodspeed or Extension()).mark_accepted is True,
        )
        written = streamed.written(service, answers, user_of(request.scope))
        return EventStream(await begun(request.receive, written), write=bytes)
    choices = await streams.unless_gone(request.receive, _collect(service, wish))
    content = await to_json(wish, shape, choices, answers, user_of(request.scope))
    if len(content) <= streams.PIECE_BYTES:
        return Response(content, media_type="application/json")
    length = {"Content-Length": str(len(content))}
    return StreamingResponse(_pieces(content), media_type="application/json", headers=length)


async def to_json(wish: Wish, shape: Shape, choices: Sequence[Choice], answers: FairQueue, user: str) -> bytes:
    """The whole answer as JSON."""
    size = _size(wish, choices)
    if size < LARGE:
        return _whole(wish, shape, choices)
    return await answers.run(user, size, lambda: _whole(wish, shape, choices))


async def _pieces(content: bytes) -> AsyncGenerator[bytes, None]:
    for piece in streams.pieces(content):
        yield piece


def _size(wish: Wish, choices: Sequence[Choice]) -> int:
    """How many entries an answer has for its texts' tokens, and for those of prompts: themselves and alternatives."""
    told = sum(_size_of_prompt(wish, choice.prompt) for choice in choices)
    written = (
        len(choice.tokens) * (1 + (text.num_logprobs or 0)) for choice, text in zip(choices, wish.texts, strict=True)
    )
    return told + sum(written)


def _size_of_prompt(wish: Wish, prompt: PromptTokens | None) -> int:
    num_top = max((text.num_prompt_logprobs or 0 for text in wish.texts), default=0)
    return 0 if prompt is None else len(prompt.ids) * (1 + num_top)


def _whole(wish: Wish, shape: Shape, choices: Sequence[Choice]) -> bytes:
    """Choice by choice: between them others have the interpreter, and one at a time is in memory other than as JSON."""
    frame = shape.frame(choices, usage_of(wish, choices))
    frame.system_fingerprint = system_fingerprint_of(wish, choices)
    if (metrics := metrics_of(choices)) is not None:
        frame.metrics = metrics
    written = ",".join(_written(shape.told(i, choice), choice) for i, choice in enumerate(choices))
    return json_with(frame, "choices", written).encode()


def _written(told: ChatChoice | CompletionChoice, choice: Choice) -> str:
    mark_whole(told, choice.ended)
    return told.model_dump_json(exclude_unset=True)


async def _collect(service: Service, wish: Wish) -> list[Choice]:
    choices = [Choice() for _ in wish.texts]
    async with aclosing(streams.write(service, wish.texts)) as items:
        async for index, item in items:
            choices[index].take(_without_text(item) if wish.is_only_echo else item)
    return choices


class Stream:
    """An answer as events, while it is written."""

    def __init__(self, wish: Wish, shape: Shape, options: StreamOptions, *, mark_accepted: bool) -> None:
        self._wish = wish
        self._shape = shape
        self._options = options
        self._mark_accepted = mark_accepted
        self._choices = [Choice() for _ in wish.texts]

    async def written(self, service: Service, answers: FairQueue, user: str) -> AsyncGenerator[bytes, None]:
        """The events. Those that tell of a long prompt are made as large answers are."""
        wish, is_begun = self._wish, False
        async with aclosing(streams.write(service, wish.texts)) as items:
            async for index, arrived in items:
                item = _without_text(arrived) if wish.is_only_echo else arrived
                self._choices[index].take(item)
                if isinstance(item, Begun):
                    continue
                work = partial(self._events, index, item, is_first=not is_begun)
                is_begun = True
                size = _size_of_prompt(wish, item.prompt) if isinstance(item, Piece) else 0
                for event in work() if size < LARGE else await answers.run(user, size, work):
                    yield event
        if self._options.include_usage:
            yield event_of(self._last())

    def _events(self, index: int, item: Piece | Ended, *, is_first: bool) -> list[bytes]:
        """What one item of a text adds."""
        new = list(self._shape.beginnings()) if is_first else []
        for part in item.each() if isinstance(item, Piece) else [item]:
            chunk = self._shape.piece(index, part) if isinstance(part, Piece) else self._shape.ending(index, part)
            if chunk is not None:
                mark_chunk(chunk.choices[0], part, spans=self._mark_accepted)
                new.append(chunk)
        for each in new:
            each.system_fingerprint = system_fingerprint_of(self._wish, [self._choices[index]])
            if self._options.continuous_usage_stats:
                each.usage = usage_of(self._wish, self._choices)
            elif self._options.include_usage:
                each.usage = None
        return [event_of(each) for each in new]

    def _last(self) -> Chunk:
        """The chunk that has the usage."""
        last = self._shape.last()
        last.usage = usage_of(self._wish, self._choices)
        last.system_fingerprint = system_fingerprint_of(self._wish, self._choices)
        if (metrics := metrics_of(self._choices)) is not None:
            last.metrics = metrics
        return last


def _without_text(item: Begun | Piece | Ended) -> Begun | Piece | Ended:
    """A text of which only the prompt is wanted: the one token that no text is without is not told."""
    match item:
        case Piece():
            return Piece("", (), prompt=item.prompt)
        case Ended():
            return replace(item, reason="length", stop=None, num_tokens=0)
    return item


def now() -> int:
    return int(time.time())
