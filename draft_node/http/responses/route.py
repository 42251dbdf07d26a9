"""`POST /v1/responses`: the request becomes a chat, and its text a response, whole or as events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.http import streams
from draft_node.http.answering import check_stream, now
from draft_node.http.body import LargeWork, reads
from draft_node.http.choices import Choice, metrics_of, system_fingerprint_of, usage_of
from draft_node.http.document import WORK, takes
from draft_node.http.errors import ApiError
from draft_node.http.responses.events import (
    Event,
    InputDetails,
    OutputDetails,
    ResponseBody,
    ResponseUsage,
    Writing,
    new_id,
)
from draft_node.http.responses.requests import NamedTool, ResponsesRequest
from draft_node.http.responses.translation import chat_of, renamed
from draft_node.http.streams import EventStream, begun
from draft_node.http.wanted import Wish, of_chat
from draft_node.service.answer import Piece
from draft_node.service.request import Begun, Ended, Wanted
from draft_node.service.service import Service
from goodspeed.serving.web import user_of
from goodspeed.serving.web.bodies import Marked, Usage


def router(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/responses", response_model=ResponseBody, responses=WORK, openapi_extra=takes(ResponsesRequest))
    async def responses(
        request: Request, body: Annotated[ResponsesRequest, Depends(reads(ResponsesRequest, work.bodies))]
    ) -> Response:
        """Keeps nothing: a conversation goes on when all of it is sent as input."""
        if body.goodspeed is not None and body.goodspeed.mark_accepted:
            what = "goodspeed.mark_accepted is not served here; ask for a chat completion"
            raise ApiError(400, what, param="goodspeed.mark_accepted")
        check_stream(body)
        chat = chat_of(body)
        with renamed():
            wanted = of_chat(chat, service, config, user_of(request.scope), request.headers)
            wish = await streams.unless_gone(request.receive, wanted)
        streams.check_room(service, config, 1, 1)
        writing = _writing(body, wish, config)
        events = _events(service, wish, writing)
        if body.stream:
            first = await begun(request.receive, events)
            return EventStream(first, write=Event.written, last=b"", broken=partial(_failed, writing))
        whole = await streams.unless_gone(request.receive, _whole(events))
        return Response(whole.model_dump_json(), media_type="application/json")

    return routes


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
    async with aclosing(streams.write(service, wish.texts)) as items:
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


def begun_body(request: ResponsesRequest, wanted: Wanted, model: str, now: int) -> ResponseBody:
    """A response without any output, with what its text is sampled by. now: seconds since 1970."""
    choice = request.tool_choice
    return ResponseBody(
        id=new_id("resp"),
        created_at=now,
        status="in_progress",
        model=model,
        output=[],
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        temperature=wanted.sampling.temperature,
        top_p=wanted.sampling.top_p,
        tools=[tool.model_dump() for tool in request.tools or ()],
        tool_choice=choice.model_dump() if isinstance(choice, NamedTool) else choice or "auto",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        text=_text(request),
        reasoning={"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        service_tier=request.service_tier,
        metadata=request.metadata or {},
        user=request.user,
    )


def _text(request: ResponsesRequest) -> dict[str, Any]:
    wanted = request.text.format if request.text is not None else None
    described = wanted.model_dump(by_alias=True, exclude_none=True) if wanted is not None else {"type": "text"}
    return {"format": described, "verbosity": "medium"}


def usage_in_response(usage: Usage) -> ResponseUsage:
    """The usage of a chat in the words of a response."""
    details = usage.completion_tokens_details
    cached = usage.prompt_tokens_details
    num_reasoning = details.reasoning_tokens if details is not None else None
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=0 if cached is None else cached.cached_tokens, cache_write_tokens=0
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=num_reasoning or 0),
        total_tokens=usage.total_tokens,
        goodspeed=usage.goodspeed,
    )
