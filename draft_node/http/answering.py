"""Handles a request from body to answer, whole or as a stream, for every endpoint that generates texts.

An `Endpoint` describes the request of an endpoint, a `Shape` builds the answer.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from draft_node.config import DraftConfig
from draft_node.http import streams
from draft_node.http.body import LargeWork, Turns, ignored_of, reads, takes
from draft_node.http.choices import Choice
from draft_node.http.errors import WORK, Answers, ApiError
from draft_node.http.requests import Asking
from draft_node.http.streams import EventStream, unless_gone
from draft_node.http.wanted import Batch, Caller
from draft_node.service.answer import Piece
from draft_node.service.queues import FairQueue
from draft_node.service.request import Begun, Ended
from draft_node.service.service import Service
from draft_node.service.tokens import PromptTokens
from goodspeed.errors import Busy
from goodspeed.serving.web import user_of

B = TypeVar("B", bound=Asking)

LARGE = 1 << 11
"""Tokens and alternatives from which an answer is serialized on another thread, to keep the event loop free."""

BYTES = 32
"""Bytes of JSON that an answer repeats from its request and that count as a token."""


class Shape(ABC):
    """One request's answer in its endpoint's format. Call `take` for each item before `events`."""

    between: ClassVar[bytes] = b": waiting\n\n"  # sent in silences of a stream; clients ignore it
    num_repeated: int = 0  # size of what the answer, and a stream's first and last events, repeat from the request

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.choices = [Choice() for _ in batch.texts]

    def take(self, index: int, item: Begun | Piece | Ended) -> None:
        """Adds an item of text number `index`."""
        self.choices[index].take(item)

    @abstractmethod
    def whole(self) -> bytes:
        """Returns the answer as JSON after all texts have ended."""

    @abstractmethod
    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        """Returns the stream events for an item."""

    @abstractmethod
    def last(self) -> list[bytes]:
        """Returns the events that end a stream after all texts."""

    @abstractmethod
    def broken(self, error: ApiError) -> bytes:
        """Returns the bytes that end a failed stream."""


ShapeOf: TypeAlias = Callable[[B, Caller], Coroutine[Any, Any, Shape]]
"""Builds the shape of a body's answer."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[B]):
    """A route that generates texts."""

    path: str
    name: str  # in the OpenAPI document
    body: type[B]
    answer: type[BaseModel]
    shape_of: ShapeOf[B]
    ignored: Callable[[B, Service], Iterable[str]] = lambda body, service: ()  # members this model ignores
    responses: Answers = field(default_factory=lambda: WORK)
    description: str = ""


def add_route(routes: APIRouter, endpoint: Endpoint[B], service: Service, config: DraftConfig, work: LargeWork) -> None:
    @routes.post(
        endpoint.path,
        name=endpoint.name,
        description=endpoint.description,
        response_model=endpoint.answer,
        responses=endpoint.responses,
        openapi_extra=takes(endpoint.body),
    )
    async def generate(request: Request, body: Annotated[Any, Depends(reads(endpoint.body, work.bodies))]) -> Response:
        check_stream(body)
        turns = await Turns.of(request, work.bodies)
        asking = endpoint.shape_of(body, Caller(service, config, turns, request.headers))
        with service.refusing():
            shape = await unless_gone(request.receive, asking)
            _check_room(shape.batch, service, config)
        ignored_of(request.scope).update(endpoint.ignored(body, service))
        return await answer(request, shape, service, work.answers, streams_it=body.stream is True)


def check_stream(body: Asking) -> None:
    """Refuses stream options without a stream, and options that streams do not support."""
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true; send both, or neither", param="stream_options")
    if body.stream and body.own.on_target_change == "restart":
        what = "goodspeed.on_target_change: a stream cannot withdraw tokens already sent; use fail, or leave out stream"
        raise ApiError(400, what, param="goodspeed.on_target_change")


async def answer(request: Request, shape: Shape, service: Service, answers: FairQueue, *, streams_it: bool) -> Response:
    """Generates all texts of a request, or refuses all, and answers. A user's disconnect ends the texts.

    answers: queue that serializes large answers.
    """
    user = user_of(request.scope)
    if streams_it:
        stream = EventStream(_events(shape, service, answers, user), shape.broken, shape.between)
        await stream.begin(request.receive)
        return stream
    await unless_gone(request.receive, _collect(shape, service))
    content = await to_json(shape, answers, user)
    if len(content) <= streams.PIECE_BYTES:
        return Response(content, media_type="application/json")
    length = {"Content-Length": str(len(content))}
    return StreamingResponse(_pieces(content), media_type="application/json", headers=length)


def _check_room(batch: Batch, service: Service, config: DraftConfig) -> None:
    """Refuses a request unless all of its texts can be admitted."""
    num_texts, most = len(batch.texts), config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if batch.n > 1 else "prompt")
    if num_texts > most - service.num_running - service.num_waiting:
        raise Busy("busy", f"{service.num_running} texts are running and {service.num_waiting} wait; ask again later")


async def _items(shape: Shape, service: Service) -> AsyncGenerator[tuple[int, Piece | Ended], None]:
    """Yields the texts' items after passing them to the shape."""
    async with aclosing(streams.write(service, shape.batch.texts)) as items:
        async for index, arrived in items:
            item = _without_text(arrived) if shape.batch.is_only_echo else arrived
            shape.take(index, item)
            if not isinstance(item, Begun):
                yield index, item


def _without_text(item: Begun | Piece | Ended) -> Begun | Piece | Ended:
    """Removes the one mandatory token from an item of a request for the prompt only (`is_only_echo`)."""
    match item:
        case Piece():
            return Piece("", (), prompt=item.prompt)
        case Ended():
            return replace(item, reason="length", stop=None, num_tokens=0)
    return item


async def _collect(shape: Shape, service: Service) -> None:
    async with aclosing(_items(shape, service)) as items:
        async for _ in items:
            pass


async def _events(shape: Shape, service: Service, answers: FairQueue, user: str) -> AsyncGenerator[bytes, None]:
    """Yields the events of a stream. Serializes long prompts and requests on the thread for large answers."""
    size_of_first = _size_of_prompts(shape.batch) + shape.num_repeated
    async with aclosing(_items(shape, service)) as items:
        async for index, item in items:
            shape.choices[index].pieces.clear()  # those of a long stream would take gigabytes; whole answers need them
            work = partial(shape.events, index, item)
            size = size_of_first
            size += _size_of_prompt(shape.batch, item.prompt) if isinstance(item, Piece) else shape.num_repeated
            size_of_first = 0
            for event in work() if size < LARGE else await answers.run(user, size, work):
                yield event
    for event in shape.last():
        yield event


async def to_json(shape: Shape, answers: FairQueue, user: str) -> bytes:
    """Returns the whole answer; serializes a large one in turn, on a thread."""
    size = _size(shape)
    return shape.whole() if size < LARGE else await answers.run(user, size, shape.whole)


def _size(shape: Shape) -> int:
    """Counts an answer's entries: tokens and alternatives, of texts and of what it repeats from the request."""
    told = _size_of_prompts(shape.batch) + sum(_size_of_prompt(shape.batch, choice.prompt) for choice in shape.choices)
    told += shape.num_repeated
    texts = zip(shape.choices, shape.batch.texts, strict=True)
    return told + sum(choice.num_tokens * (1 + (text.num_logprobs or 0)) for choice, text in texts)


def _size_of_prompts(batch: Batch) -> int:
    """Counts the tokens of prompts that an answer shows as text or ids."""
    return (batch.is_echo + batch.returns_token_ids) * sum(len(text.prompt) for text in batch.texts)


def _size_of_prompt(batch: Batch, prompt: PromptTokens | None) -> int:
    num_top = max((text.num_prompt_logprobs or 0 for text in batch.texts), default=0)
    return 0 if prompt is None else len(prompt.ids) * (1 + num_top)


async def _pieces(content: bytes) -> AsyncGenerator[bytes, None]:
    for piece in streams.pieces(content):
        yield piece


def now() -> int:
    return int(time.time())
