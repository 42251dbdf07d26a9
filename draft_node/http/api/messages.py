"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API for the same conversations."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from draft_node.config import DraftConfig
from draft_node.http.answer.messages import MessageShape
from draft_node.http.answer.streams import unless_gone
from draft_node.http.api.endpoint import Endpoint
from draft_node.http.ask.body import LargeWork, ignored_of, reads, takes
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import of_chat
from draft_node.http.ask.messages import NAMES, chat_of, knows_effort
from draft_node.http.ask.options import has_switch, options_of
from draft_node.http.ask.prompts import encode_chat
from draft_node.http.schema.errors import declared, renamed, working
from draft_node.http.schema.message_events import FailureBody, MessageBody, TokenCount
from draft_node.http.schema.messages import CountRequest, MessagesRequest
from draft_node.service.service import Service
from goodspeed.serving.web.errors import MESSAGES, OVERLOADED


async def _shape_of(body: MessagesRequest, caller: Caller) -> MessageShape:
    chat = await caller.run(partial(chat_of, body, caller.service.chats))
    with renamed(NAMES):
        batch = await of_chat(chat, caller)
    return MessageShape(body, batch, caller.model_of(body.model))


def _ignored(body: CountRequest, service: Service) -> Iterator[str]:
    chats = service.chats
    if body.thinking is not None and not has_switch(chats, tools=bool(body.own_tools)):
        yield "thinking"
    if not knows_effort(body, chats):
        yield "effort"


ENDPOINT = Endpoint(
    path=MESSAGES,
    name="messages",
    body=MessagesRequest,
    answer=MessageBody,
    shape_of=_shape_of,
    ignored=_ignored,
    responses=working(FailureBody, OVERLOADED),
    description="Anthropic's API for the same conversations as chat completions.",
)


def route_of_counts(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()
    responses = declared(400, 401, 404, 405, 413, 415, 429, OVERLOADED, body=FailureBody)

    @routes.post(f"{MESSAGES}/count_tokens", responses=responses, openapi_extra=takes(CountRequest))
    async def count_tokens(
        request: Request, body: Annotated[CountRequest, Depends(reads(CountRequest, work.bodies))]
    ) -> TokenCount:
        """Counts the tokens of the prompt that a request with these parameters has."""
        caller = await Caller.of(request, service, config, work.bodies)
        chat = await caller.run(partial(chat_of, body, service.chats))
        ignored_of(request.scope).update(_ignored(body, service))
        with renamed(NAMES):
            caller.model_of(chat.model)
            encoding = encode_chat(chat.messages, caller, options_of(chat, service.chats).inputs)
            return TokenCount(input_tokens=len(await unless_gone(request.receive, encoding)))

    return routes
