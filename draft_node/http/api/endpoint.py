"""A route that generates texts: from body to answer, whole or as a stream."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.http.answer.shape import Shape, collect, events_of, to_json
from draft_node.http.answer.streams import EventStream, unless_gone, whole
from draft_node.http.ask.body import LargeWork, ignored_of, reads, takes
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import Asking
from draft_node.http.schema.errors import WORK, Answers, ApiError
from draft_node.service.queues import FairQueue
from draft_node.service.service import Service
from goodspeed.errors import Busy
from goodspeed.serving.web import user_of

B = TypeVar("B", bound=Asking)

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
        asking = endpoint.shape_of(body, await Caller.of(request, service, config, work.bodies))
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
        stream = EventStream(events_of(shape, service, answers, user), shape.broken, shape.between)
        await stream.begin(request.receive)
        return stream
    await unless_gone(request.receive, collect(shape, service))
    return whole(await to_json(shape, answers, user))


def _check_room(batch: Batch, service: Service, config: DraftConfig) -> None:
    """Refuses a request unless all of its texts can be admitted."""
    num_texts, most = len(batch.texts), config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if batch.n > 1 else "prompt")
    if num_texts > most - service.num_running - service.num_waiting:
        raise Busy("busy", f"{service.num_running} texts are running and {service.num_waiting} wait; ask again later")
