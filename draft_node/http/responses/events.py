"""A response while it is written: pieces of a text in, events out; and the bodies of both."""

import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel

from draft_node.http.tools import call_id
from draft_node.parsing.formats import Call, ToolFormat
from draft_node.service.answer import Piece
from goodspeed.serving.web.bodies import Marked, Metrics, Speculation

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class MessageItem(BaseModel):
    type: Literal["message"] = "message"
    id: str
    status: Status
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class ReasoningItem(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status
    summary: list[Any]
    content: list[ReasoningText]
    encrypted_content: None = None  # it is told in plain text


class CallItem(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = MessageItem | ReasoningItem | CallItem


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    goodspeed: Speculation | None


class Failure(BaseModel):
    code: str
    message: str


class Incomplete(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseBody(BaseModel):
    """A response: what was asked for, and what came of it so far."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    system_fingerprint: str | None = None
    metrics: Metrics | None = None
    goodspeed: Marked | None = None
    instructions: str | None
    max_output_tokens: int | None
    temperature: float
    top_p: float
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    text: dict[str, Any]
    reasoning: dict[str, Any]
    truncation: Literal["disabled"] = "disabled"
    store: Literal[False] = False
    background: Literal[False] = False
    previous_response_id: None = None
    service_tier: str | None
    metadata: dict[str, str]
    user: str | None


class Event(BaseModel):
    """An event of a stream; each type has some of these."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: OutputItem | None = None
    content_index: int | None = None
    part: OutputText | ReasoningText | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: list[Any] | None = None
    goodspeed: Marked | None = None

    def written(self) -> bytes:
        """The event as a stream has it: without what its type does not have, and with all that its objects have."""
        return f"event: {self.type}\ndata: {self.model_dump_json(include=self.model_fields_set)}\n\n".encode()


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class Writing:
    """One response, from its first event to its last."""

    def __init__(self, body: ResponseBody, tools: ToolFormat | None) -> None:
        """body: without any output; it grows."""
        self.body = body
        self._tools = tools
        self._numbers = count()
        self._open: MessageItem | ReasoningItem | None = None  # the last item, if it may go on

    def begin_anew(self) -> None:
        """Forgets what was written so far."""
        self.body = self.body.model_copy(update={"output": []})
        self._numbers = count()
        self._open = None

    def begin(self) -> Iterator[Event]:
        yield self._event("response.created", response=self._shown())
        yield self._event("response.in_progress", response=self._shown())

    def take(self, piece: Piece) -> Iterator[Event]:
        """What a piece of the text adds."""
        for each in piece.each():
            if each.call is not None:
                yield from self._close("completed")
                yield from self._call(each.call)
            elif each.thinking or each.text:
                mark = {"goodspeed": Marked(local=True)} if any(span.local for span in each.spans) else {}
                kind = ReasoningItem if each.thinking else MessageItem
                yield from self._grow(kind, each.thinking or each.text, mark)

    def end(self, *, is_cut: bool) -> Iterator[Event]:
        """Tells that the text is over, but for the last event, which the caller completes the body for.

        is_cut: it ended for its length.
        """
        yield from self._close("incomplete" if is_cut else "completed")
        self.body.status = "incomplete" if is_cut else "completed"
        if is_cut:
            self.body.incomplete_details = Incomplete(reason="max_output_tokens")

    def last(self) -> Event:
        """The last event; the body has all by now."""
        return self._event(f"response.{self.body.status}", response=self._shown())

    def fail(self, message: str) -> Event:
        """The text cannot go on."""
        self.body.status, self.body.error = "failed", Failure(code="server_error", message=message)
        return self.last()

    def _call(self, call: Call) -> Iterator[Event]:
        """A call is told when it is complete: its arguments come at once."""
        item = CallItem(
            id=new_id("fc"), status="in_progress", call_id=call_id(self._tools), name=call.name, arguments=""
        )
        yield self._add(item)
        where = self._where(item)
        yield self._event("response.function_call_arguments.delta", **where, delta=call.arguments)
        item.status, item.arguments = "completed", call.arguments
        yield self._event("response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
        yield self._done(item)

    def _grow(self, kind: type[MessageItem | ReasoningItem], text: str, mark: Mapping[str, Marked]) -> Iterator[Event]:
        """Adds to the last item, if it is of this kind, or to a new one. mark: of text that the draft model wrote."""
        if not isinstance(self._open, kind):
            yield from self._close("completed")
            yield from self._begin(kind)
        item = self._open
        if item is None:
            raise RuntimeError("an item that was begun is not there")
        item.content[0].text += text
        name = "response.output_text.delta" if isinstance(item, MessageItem) else "response.reasoning_text.delta"
        yield self._event(name, **self._where(item), content_index=0, delta=text, **_logprobs(item), **mark)

    def _begin(self, kind: type[MessageItem | ReasoningItem]) -> Iterator[Event]:
        item: MessageItem | ReasoningItem
        if kind is MessageItem:
            item = MessageItem(id=new_id("msg"), status="in_progress", content=[])
            yield self._add(item)
            item.content.append(OutputText(text="", annotations=[], logprobs=[]))
        else:
            item = ReasoningItem(id=new_id("rs"), status="in_progress", summary=[], content=[])
            yield self._add(item)
            item.content.append(ReasoningText(text=""))
        self._open = item
        yield self._part("response.content_part.added", item)

    def _close(self, status: Status) -> Iterator[Event]:
        """The last item is complete."""
        item, self._open = self._open, None
        if item is None:
            return
        text = item.content[0].text
        name = "response.output_text.done" if isinstance(item, MessageItem) else "response.reasoning_text.done"
        yield self._event(name, **self._where(item), content_index=0, text=text, **_logprobs(item))
        yield self._part("response.content_part.done", item)
        item.status = status
        yield self._done(item)

    def _part(self, name: str, item: MessageItem | ReasoningItem) -> Event:
        return self._event(name, **self._where(item), content_index=0, part=item.content[0].model_copy())

    def _add(self, item: OutputItem) -> Event:
        self.body.output.append(item)
        index = len(self.body.output) - 1
        return self._event("response.output_item.added", output_index=index, item=item.model_copy(deep=True))

    def _done(self, item: OutputItem) -> Event:
        index = len(self.body.output) - 1
        return self._event("response.output_item.done", output_index=index, item=item.model_copy(deep=True))

    def _where(self, item: OutputItem) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": len(self.body.output) - 1}

    def _shown(self) -> ResponseBody:
        return self.body.model_copy(deep=True)

    def _event(self, kind: str, **fields: Any) -> Event:
        return Event(type=kind, sequence_number=next(self._numbers), **fields)


def _logprobs(item: MessageItem | ReasoningItem) -> dict[str, list[Any]]:
    """Events of texts have a list, which is empty: no log-probabilities are told here."""
    return {"logprobs": []} if isinstance(item, MessageItem) else {}
