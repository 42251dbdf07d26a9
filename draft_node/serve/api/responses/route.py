"""`POST /v1/responses`: the request becomes a chat, and its text a response, whole or as a stream of events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.serve.api.document import WORK, takes
from draft_node.serve.api.large import LargeWork
from draft_node.serve.api.request.body import reads
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.wanted import Wish, of_chat
from draft_node.serve.api.response import texts
from draft_node.serve.api.response.answering import now
from draft_node.serve.api.response.choices import Choice, system_fingerprint_of, usage_of
from draft_node.serve.api.response.metrics import metrics_of
from draft_node.serve.api.response.responses import Marked
from draft_node.serve.api.response.stream import EventStream, begun
from draft_node.serve.api.responses.asked import begun_body, usage_in_response
from draft_node.serve.api.responses.bodies import Event, ResponseBody
from draft_node.serve.api.responses.schemas import ResponsesRequest
from draft_node.serve.api.responses.translation import chat_of, renamed
from draft_node.serve.api.responses.writing import Writing
from draft_node.serve.service import Begun, Ended, Piece, Service
from goodspeed.node.web import user_of


def router(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/responses", response_model=ResponseBody, responses=WORK, openapi_extra=takes(ResponsesRequest))
    async def responses(
        request: Request, body: Annotated[ResponsesRequest, Depends(reads(ResponsesRequest, work.bodies))]
    ) -> Response:
        """Keeps nothing: a conversation goes on when all of it is sent as input."""
        _check(body)
        chat = chat_of(body)
        with renamed():
            wanted = of_chat(chat, service, config, user_of(request.scope), request.headers)
            wish = await texts.unless_gone(request.receive, wanted)
        texts.check_room(service, config, 1, 1)
        writing = _writing(body, wish, config)
        events = _events(service, wish, writing)
        if body.stream:
            first = await begun(request.receive, events)
            return EventStream(first, write=Event.written, last=b"", broken=partial(_failed, writing))
        whole = await texts.unless_gone(request.receive, _whole(events))
        return Response(whole.model_dump_json(), media_type="application/json")

    return routes


def _check(body: ResponsesRequest) -> None:
    """Refuses what is asked of GoodSpeed and has no place in a response."""
    extension = body.goodspeed
    if extension is not None and extension.mark_accepted:
        what = "goodspeed.mark_accepted is not served here; ask for a chat completion"
        raise ApiError(400, what, param="goodspeed.mark_accepted")
    if extension is not None and extension.on_target_change == "restart" and body.stream:
        what = "goodspeed.on_target_change: a stream cannot take back what it has sent; use fail, or leave out stream"
        raise ApiError(400, what, param="goodspeed.on_target_change")
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true; send both, or neither", param="stream_options")


def _writing(body: ResponsesRequest, wish: Wish, config: DraftConfig) -> Writing:
    tools = wish.speech.formats.tools if wish.speech is not None else None
    return Writing(begun_body(body, wish.texts[0], config.served_model_name, now()), tools)


async def _whole(events: AsyncGenerator[Event, None]) -> ResponseBody:
    """The response of the last event; what fails is raised, since nothing is sent yet."""
    last: ResponseBody | None = None
    async with aclosing(events):
        async for event in events:
            last = event.response or last
    if last is None:
        raise RuntimeError("a response ended without its last event")
    return last


async def _events(service: Service, wish: Wish, writing: Writing) -> AsyncGenerator[Event, None]:
    """The events of a response. What fails is raised."""
    choice, is_begun = Choice(), False
    async with aclosing(texts.write(service, wish.texts)) as items:
        async for _, item in items:
            choice.take(item)
            if isinstance(item, Begun):
                writing.begin_anew()
                is_begun = False
                continue
            if not is_begun:
                is_begun = True
                for event in writing.begin():
                    yield event
            for event in _of(item, wish, choice, writing):
                yield event


def _failed(writing: Writing, error: ApiError) -> bytes:
    """The last event of a stream that breaks."""
    return Event.written(writing.fail(str(error)))


def _of(item: Piece | Ended, wish: Wish, choice: Choice, writing: Writing) -> list[Event]:
    if isinstance(item, Piece):
        return list(writing.take(item))
    events = list(writing.end(is_cut=item.reason == "length"))
    body = writing.body
    body.completed_at = now() if body.status == "completed" else None
    body.usage = usage_in_response(usage_of(wish, [choice]))
    body.system_fingerprint = system_fingerprint_of(wish, [choice])
    body.metrics = metrics_of([choice])
    if item.num_local:
        body.goodspeed = Marked(local_tokens=item.num_local)
    return [*events, writing.last()]
