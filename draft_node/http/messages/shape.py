"""`POST /v1/messages`: converts the request to a chat, and its text to a message, whole or as events."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from draft_node.config import DraftConfig
from draft_node.http.answering import Endpoint
from draft_node.http.body import LargeWork, Turns, ignored_of, reads, takes
from draft_node.http.choices import usage_of
from draft_node.http.errors import ApiError, declared, working
from draft_node.http.messages.events import (
    Block,
    Event,
    FailureBody,
    MessageBody,
    MessageUsage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    TokenCount,
    ToolUseBlock,
)
from draft_node.http.messages.requests import NAMES, CountRequest, MessagesRequest, chat_of, knows_effort
from draft_node.http.names import served_name
from draft_node.http.prompts import encode_chat
from draft_node.http.streams import unless_gone
from draft_node.http.tools import call_id, has_switch
from draft_node.http.translation import Itemised, new_id, renamed, server_event
from draft_node.http.wanted import Batch, Caller, of_chat, options_of
from draft_node.parsing.formats import Call
from draft_node.service.request import Ended
from draft_node.service.service import Service
from goodspeed.serving.web.errors import MESSAGES, OVERLOADED, messages_error

UNSIGNED = "unsigned"
"""Signature of all thinking: some clients drop thinking that has none."""


class MessageShape(Itemised):
    """One message; each block extends `body` and yields stream events."""

    between = server_event("ping", '{"type": "ping"}')

    def __init__(self, request: MessagesRequest, batch: Batch, model: str) -> None:
        super().__init__(batch)
        self._stops = request.stop_sequences or ()
        self._max_tokens = request.max_tokens
        self.body = MessageBody(
            id=new_id("msg"),
            type="message",
            role="assistant",
            model=model,
            content=[],
            stop_reason=None,
            stop_sequence=None,
            usage=MessageUsage.begun(batch.num_prompt_tokens),
        )

    def written(self) -> str:
        return self.body.model_dump_json(exclude_unset=True)

    def broken(self, error: ApiError) -> bytes:
        return server_event("error", json.dumps(messages_error(error.status, error.body)))

    def begun(self) -> Iterator[Event]:
        yield Event(type="message_start", message=self.body.model_copy(deep=True))

    def opened(self, *, is_thinking: bool) -> Iterator[Event]:
        thought, said = ThinkingBlock(type="thinking", thinking="", signature=""), TextBlock(type="text", text="")
        yield self._begin(thought if is_thinking else said)

    def grown(self, text: str) -> Iterator[Event]:
        block = self.body.content[-1]
        if isinstance(block, ThinkingBlock):
            block.thinking += text
            yield self._delta("thinking", "thinking", text)
        elif isinstance(block, TextBlock):
            block.text += text
            yield self._delta("text", "text", text)

    def closed(self, *, is_cut: bool) -> Iterator[Event]:
        block = self.body.content[-1]
        if isinstance(block, ThinkingBlock):
            block.signature = UNSIGNED
            yield self._delta("signature", "signature", UNSIGNED)
        yield self._event("content_block_stop")

    def called(self, call: Call) -> Iterator[Event]:
        block = ToolUseBlock(type="tool_use", id=call_id(self.batch.formats.tools), name=call.name, input={})
        yield self._begin(block)
        yield self._delta("input_json", "partial_json", call.arguments)
        block.input = json.loads(call.arguments)
        yield self._event("content_block_stop")

    def ended(self, ended: Ended) -> Iterator[Event]:
        body = self.body
        body.stop_reason = self._reason(ended)
        body.stop_sequence = ended.stop if body.stop_reason == "stop_sequence" else None
        body.usage = MessageUsage.of(usage_of(self.batch, self.choices))
        delta: dict[str, str | None] = {"stop_reason": body.stop_reason, "stop_sequence": body.stop_sequence}
        yield Event(type="message_delta", delta=delta, usage=body.usage)
        yield Event(type="message_stop")

    def _reason(self, ended: Ended) -> StopReason:
        """Returns the stop reason; the target's own stop strings are the end of its turn."""
        if ended.reason == "length":
            is_full = self.batch.texts[0].max_tokens < self._max_tokens
            return "model_context_window_exceeded" if is_full else "max_tokens"
        if any(isinstance(block, ToolUseBlock) for block in self.body.content):
            return "tool_use"
        return "stop_sequence" if ended.stop in self._stops else "end_turn"

    def _begin(self, block: Block) -> Event:
        self.body.content.append(block)
        return self._event("content_block_start", content_block=block.model_copy())

    def _delta(self, kind: str, name: str, text: str) -> Event:
        return self._event("content_block_delta", delta={"type": f"{kind}_delta", name: text})

    def _event(self, kind: str, **fields: Any) -> Event:
        return Event(type=kind, index=len(self.body.content) - 1, **fields)


async def _shape_of(body: MessagesRequest, caller: Caller) -> MessageShape:
    chat = await caller.turns.run(partial(chat_of, body, caller.service.chats))
    with renamed(NAMES):
        batch = await of_chat(chat, caller)
    return MessageShape(body, batch, caller.model_of(body))


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
        turns = await Turns.of(request, work.bodies)
        chat = await turns.run(partial(chat_of, body, service.chats))
        ignored_of(request.scope).update(_ignored(body, service))
        with renamed(NAMES):
            served_name(chat.model, service, config)
            encoding = encode_chat(chat.messages, service, turns, options_of(chat, service).inputs)
            return TokenCount(input_tokens=len(await unless_gone(request.receive, encoding)))

    return routes
