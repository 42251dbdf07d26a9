"""`POST /v1/responses`: converts the request to a chat, and its text to a response, whole or as events."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, groupby
from typing import Any

from draft_node.config import DraftConfig
from draft_node.http.answering import Endpoint, Shape, now
from draft_node.http.choices import metrics_of, system_fingerprint_of, usage_of
from draft_node.http.errors import ApiError
from draft_node.http.responses.events import (
    CallItem,
    Event,
    Failure,
    Incomplete,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseBody,
    ResponseUsage,
    Status,
)
from draft_node.http.responses.requests import NamedTool, ResponsesRequest, chat_of, renamed
from draft_node.http.tools import call_id
from draft_node.http.wanted import Wish, of_chat
from draft_node.parsing.formats import Call
from draft_node.service.answer import Piece
from draft_node.service.request import Ended, Wanted
from draft_node.service.service import Service
from goodspeed.serving.web.bodies import Marked


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Merges adjacent pieces of text, and of reasoning, into one event instead of one per token."""
    each = chain.from_iterable(piece.each() for piece in pieces)
    for _, group in groupby(each, lambda piece: id(piece.call) if piece.call else bool(piece.thinking)):
        run = list(group)
        text, thinking = "".join(one.text for one in run), "".join(one.thinking for one in run)
        yield replace(run[0], text=text, thinking=thinking, spans=tuple(span for one in run for span in one.spans))


class ResponseShape(Shape):
    """One response; each item extends `body` and yields stream events."""

    def __init__(self, request: ResponsesRequest, wish: Wish, model: str) -> None:
        super().__init__(wish)
        self.body = _begun_body(request, wish.texts[0], model)
        self._numbers = count()
        self._is_begun = False
        self._open: MessageItem | ReasoningItem | None = None  # the latest item, if unfinished

    def whole(self) -> bytes:
        [choice] = self.choices
        for item in (*_joined(choice.pieces), choice.ended):
            if item is not None:
                list(self._told(item))
        return self.body.model_dump_json().encode()

    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        return [event.written() for event in self._told(item)]

    def last(self) -> list[bytes]:
        return []

    def broken(self, error: ApiError) -> bytes:
        self.body.status, self.body.error = "failed", Failure(code="server_error", message=str(error))
        return self._of_body("response.failed").written()

    def _told(self, item: Piece | Ended) -> Iterator[Event]:
        if not self._is_begun:
            self._is_begun = True
            yield self._of_body("response.created")
            yield self._of_body("response.in_progress")
        if isinstance(item, Ended):
            yield from self._end(item)
            return
        for each in item.each():
            if each.call is not None:
                yield from self._close("completed")
                yield from self._call(each.call)
            elif each.thinking or each.text:
                mark = {"goodspeed": Marked(local=True)} if any(span.local for span in each.spans) else {}
                kind = ReasoningItem if each.thinking else MessageItem
                yield from self._grow(kind, each.thinking or each.text, mark)

    def _end(self, ended: Ended) -> Iterator[Event]:
        is_cut, body = ended.reason == "length", self.body
        status: Status = "incomplete" if is_cut else "completed"
        yield from self._close(status)
        body.status = status
        body.incomplete_details = Incomplete(reason="max_output_tokens") if is_cut else None
        body.completed_at = None if is_cut else now()
        body.usage = ResponseUsage.of(usage_of(self.wish, self.choices))
        body.system_fingerprint = system_fingerprint_of(self.wish, self.choices)
        body.metrics = metrics_of(self.choices)
        body.goodspeed = Marked(local_tokens=ended.num_local) if ended.num_local else None
        yield self._of_body(f"response.{status}")

    def _call(self, call: Call) -> Iterator[Event]:
        """Yields the events of a complete call; its arguments come in one delta."""
        own = call_id(self.wish.formats.tools)
        item = CallItem(id=_new_id("fc"), status="in_progress", call_id=own, name=call.name, arguments="")
        yield self._add(item)
        where = self._where(item)
        yield self._event("response.function_call_arguments.delta", **where, delta=call.arguments)
        item.status, item.arguments = "completed", call.arguments
        yield self._event("response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
        yield self._item("response.output_item.done", item)

    def _grow(self, kind: type[MessageItem | ReasoningItem], text: str, mark: Mapping[str, Marked]) -> Iterator[Event]:
        """Adds text to the open item if of this kind, else to a new one. mark: for the draft model's own text."""
        if not isinstance(self._open, kind):
            yield from self._close("completed")
            yield from self._begin(kind)
        if (item := self._open) is None:
            raise RuntimeError("an item that was begun is not there")
        item.content[0].text += text
        yield self._text_event("delta", item, delta=text, **mark)

    def _begin(self, kind: type[MessageItem | ReasoningItem]) -> Iterator[Event]:
        item: MessageItem | ReasoningItem
        if kind is MessageItem:
            item = MessageItem(id=_new_id("msg"), status="in_progress", content=[])
            yield self._add(item)
            item.content.append(OutputText(text="", annotations=[], logprobs=[]))
        else:
            item = ReasoningItem(id=_new_id("rs"), status="in_progress", summary=[], content=[])
            yield self._add(item)
            item.content.append(ReasoningText(text=""))
        self._open = item
        yield self._part("response.content_part.added", item)

    def _close(self, status: Status) -> Iterator[Event]:
        """Finishes the open item, if any."""
        item, self._open = self._open, None
        if item is None:
            return
        yield self._text_event("done", item, text=item.content[0].text)
        yield self._part("response.content_part.done", item)
        item.status = status
        yield self._item("response.output_item.done", item)

    def _text_event(self, kind: str, item: MessageItem | ReasoningItem, **fields: Any) -> Event:
        """Returns a text event; messages get an empty list of log-probabilities, which are not supported here."""
        if isinstance(item, MessageItem):
            name, fields = f"response.output_text.{kind}", {**fields, "logprobs": []}
        else:
            name = f"response.reasoning_text.{kind}"
        return self._event(name, **self._where(item), content_index=0, **fields)

    def _part(self, name: str, item: MessageItem | ReasoningItem) -> Event:
        return self._event(name, **self._where(item), content_index=0, part=item.content[0].model_copy())

    def _add(self, item: OutputItem) -> Event:
        self.body.output.append(item)
        return self._item("response.output_item.added", item)

    def _item(self, name: str, item: OutputItem) -> Event:
        return self._event(name, output_index=len(self.body.output) - 1, item=item.model_copy(deep=True))

    def _where(self, item: OutputItem) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": len(self.body.output) - 1}

    def _of_body(self, name: str) -> Event:
        return self._event(name, response=self.body.model_copy(deep=True))

    def _event(self, kind: str, /, **fields: Any) -> Event:
        return Event(type=kind, sequence_number=next(self._numbers), **fields)


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _begun_body(request: ResponsesRequest, wanted: Wanted, model: str) -> ResponseBody:
    """Returns a response without output, with the parameters of request and sampling."""
    choice, form = request.tool_choice, request.text.format if request.text is not None else None
    described = form.model_dump(by_alias=True, exclude_none=True) if form is not None else {"type": "text"}
    return ResponseBody(
        id=_new_id("resp"),
        created_at=now(),
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
        text={"format": described, "verbosity": "medium"},
        reasoning={"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        service_tier=request.service_tier,
        metadata=request.metadata or {},
        user=request.user,
    )


async def _shape_of(
    body: ResponsesRequest, service: Service, config: DraftConfig, user: str, headers: Mapping[str, str]
) -> ResponseShape:
    chat = chat_of(body)
    with renamed():
        wish = await of_chat(chat, service, config, user, headers)
    return ResponseShape(body, wish, config.served_model_name)


ENDPOINT = Endpoint(
    path="/v1/responses",
    name="responses",
    body=ResponsesRequest,
    answer=ResponseBody,
    shape_of=_shape_of,
    description="Keeps nothing: a conversation goes on when all of it is sent as input.",
)
