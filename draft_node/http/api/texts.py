"""The routes that generate texts: from body to answer, whole or as a stream."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
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
from draft_node.http.ask import messages, responses
from draft_node.http.ask.body import LargeWork, ignored_of, read
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import Batch, of_chat, of_completion
from draft_node.http.schema.chat import Asking, ChatRequest, CompletionRequest
from draft_node.http.schema.errors import ApiError, renamed
from draft_node.http.schema.messages import CountRequest, MessagesRequest
from draft_node.http.schema.responses import ResponsesRequest
from draft_node.service.service import Service
from goodspeed.errors import Busy
from goodspeed.serving.web.errors import MESSAGES

B = TypeVar("B", bound=Asking)


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[B]):
    """A route that generates texts."""

    path: str
    body: type[B]
    shape_of: Callable[[B, Caller], Coroutine[Any, Any, Shape]]
    ignored: Callable[[B, Service], Iterable[str]] = lambda body, service: ()  # members this model ignores


async def _completion(body: CompletionRequest, caller: Caller) -> CompletionShape:
    return CompletionShape(body, await of_completion(body, caller), caller.model_of(body.model))


async def _chat(body: ChatRequest, caller: Caller) -> ChatShape:
    return ChatShape(body, await of_chat(body, caller), caller.model_of(body.model))


async def _response(body: ResponsesRequest, caller: Caller) -> ResponseShape:
    chat = await caller.run(partial(responses.chat_of, body))
    with renamed(responses.names_of(body)):
        batch = await of_chat(chat, caller)
    return await caller.run(partial(ResponseShape, body, batch, caller.model_of(body.model)))


async def _message(body: MessagesRequest, caller: Caller) -> MessageShape:
    chat = await caller.run(partial(messages.chat_of, body, caller.service.chats))
    with renamed(messages.NAMES):
        batch = await of_chat(chat, caller)
    return MessageShape(body, batch, caller.model_of(body.model))


def _ignored_by_chats(body: ChatRequest, service: Service) -> Iterator[str]:
    if body.enable_thinking is not None and not service.chats.switches(tools=bool(body.tools)):
        yield "enable_thinking"


def ignored_by_messages(body: CountRequest, service: Service) -> Iterator[str]:
    if body.thinking is not None and not service.chats.switches(tools=bool(body.own_tools)):
        yield "thinking"
    if not messages.knows_effort(body, service.chats):
        yield "effort"


ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint(path="/v1/completions", body=CompletionRequest, shape_of=_completion),
    Endpoint(path="/v1/chat/completions", body=ChatRequest, shape_of=_chat, ignored=_ignored_by_chats),
    Endpoint(path="/v1/responses", body=ResponsesRequest, shape_of=_response),
    Endpoint(path=MESSAGES, body=MessagesRequest, shape_of=_message, ignored=ignored_by_messages),
)


def routes_of_texts(service: Service, config: DraftConfig, work: LargeWork) -> list[Route]:
    return [_route(endpoint, service, config, work) for endpoint in ENDPOINTS]


def _route(endpoint: Endpoint[B], service: Service, config: DraftConfig, work: LargeWork) -> Route:
    async def generate(request: Request) -> Response:
        body = await read(request, endpoint.body, work.bodies)
        caller = Caller.of(request, service, config, work.bodies)
        with service.refusing():
            shape = await unless_gone(request.receive, endpoint.shape_of(body, caller))
            _check_room(shape.batch, service, config)
        ignored_of(request.scope).update(endpoint.ignored(body, service))
        if not body.stream:
            await unless_gone(request.receive, collect(shape, service))
            return whole(await to_json(shape, work.answers, caller.user))
        stream = EventStream(events_of(shape, service, work.answers, caller.user), shape.broken, shape.between)
        await stream.begin(request.receive)
        return stream

    return Route(endpoint.path, generate, methods=["POST"])


def _check_room(batch: Batch, service: Service, config: DraftConfig) -> None:
    """Refuses a request unless all of its texts can be admitted."""
    num_texts, most = len(batch.texts), config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if batch.n > 1 else "prompt")
    if num_texts > most - service.num_running - service.num_waiting:
        raise Busy("busy", f"{service.num_running} texts are running and {service.num_waiting} wait; ask again later")
