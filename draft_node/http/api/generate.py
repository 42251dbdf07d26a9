"""The routes that generate texts: from body to answer, whole or as a stream."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from draft_node.config import DraftConfig
from draft_node.http.answer.chat import ChatShape
from draft_node.http.answer.completions import CompletionShape
from draft_node.http.answer.messages import MessageShape
from draft_node.http.answer.responses import ResponseShape
from draft_node.http.answer.shape import Shape, collect, events_of, to_json
from draft_node.http.answer.streams import EventStream, unless_gone, whole
from draft_node.http.ask.body import ignored_of, read
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import Batch, of_chat, of_completion
from draft_node.http.schema.chat import Asking, ChatRequest, CompletionRequest
from draft_node.http.schema.errors import ApiError, renamed
from draft_node.http.schema.messages import MessagesRequest
from draft_node.http.schema.responses import ResponsesRequest
from draft_node.service.service import Service
from goodspeed.serving.web.errors import MESSAGES

B = TypeVar("B", bound=Asking)


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[B]):
    """A route that generates texts."""

    path: str
    body: type[B]
    batch_of: Callable[[B, Caller], Coroutine[Any, Any, Batch]]
    shape: Callable[[B, Batch, str], Shape]
    repeats: bool = False  # the answer repeats the request, so it is begun where a large one is read


async def _by_chat(body: ResponsesRequest | MessagesRequest, caller: Caller) -> Batch:
    chat = await caller.run(partial(body.chat, caller.service.chats))
    with renamed(body.names):
        return await of_chat(chat, caller)


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint(path="/v1/completions", body=CompletionRequest, batch_of=of_completion, shape=CompletionShape),
    Endpoint(path="/v1/chat/completions", body=ChatRequest, batch_of=of_chat, shape=ChatShape),
    Endpoint(path="/v1/responses", body=ResponsesRequest, batch_of=_by_chat, shape=ResponseShape, repeats=True),
    Endpoint(path=MESSAGES, body=MessagesRequest, batch_of=_by_chat, shape=MessageShape),
)


def routes_of_texts(service: Service, config: DraftConfig) -> list[Route]:
    return [_route(endpoint, service, config) for endpoint in ENDPOINTS]


def _route(endpoint: Endpoint[B], service: Service, config: DraftConfig) -> Route:
    async def begun(body: B, caller: Caller) -> Shape:
        batch = await endpoint.batch_of(body, caller)
        begin = partial(endpoint.shape, body, batch, caller.model_of(body.model))
        return await caller.run(begin) if endpoint.repeats else begin()

    async def generate(request: Request) -> Response:
        body = await read(request, endpoint.body, service.bodies)
        caller = Caller.of(request, service, config)
        with service.refusing():
            shape = await unless_gone(request.receive, begun(body, caller))
            _check_room(shape.batch, service, config)
        ignored_of(request.scope).update(body.ignored(service.chats))
        if not body.stream:
            await unless_gone(request.receive, collect(shape, service))
            return whole(await to_json(shape, service, caller.user))
        stream = EventStream(events_of(shape, service, caller.user), shape.broken, shape.between)
        await stream.begin(request.receive)
        return stream

    return Route(endpoint.path, generate, methods=["POST"])


def _check_room(batch: Batch, service: Service, config: DraftConfig) -> None:
    """Refuses a request unless all of its texts can be admitted."""
    num_texts, most = len(batch.texts), config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if batch.n > 1 else "prompt")
    service.check_room(batch.texts[0], num_texts)
