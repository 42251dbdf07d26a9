"""A text becomes a response, whole or as events."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import BaseModel

from draft_node.core.generation import Generation
from draft_node.http.answer.choices import call_id, metrics_of, system_fingerprint_of, usage_of
from draft_node.http.answer.items import Event, Itemised, new_id, server_event
from draft_node.http.answer.shape import BYTES, now
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.errors import ApiError
from draft_node.http.schema.response_events import (
    CallItem,
    CustomCallItem,
    Failure,
    Incomplete,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseBody,
    ResponseUsage,
    SearchCallItem,
)
from draft_node.http.schema.response_tools import FunctionTool, as_input
from draft_node.http.schema.responses import ResponsesRequest
from draft_node.parsing.formats import Call
from draft_node.service.answer import Ended

FAILURES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""OpenAI's codes of a failed response by status; `server_error` for the others."""


class ResponseShape(Itemised):
    """One response; each item extends `body` and yields stream events."""

    def __init__(self, request: ResponsesRequest, batch: Batch, model: str) -> None:
        super().__init__(batch)
        self.body = _begun_body(request, batch.texts[0], model)
        self.num_repeated = len(self.written()) // BYTES
        self._toolbox = request.toolbox
        self._numbers = count()

    def written(self) -> str:
        return self.body.model_dump_json()

    def broken(self, error: ApiError) -> bytes:
        begun = [server_event(event) for event in self.begin()]
        code = FAILURES.get(error.status, "server_error")
        self.body.status, self.body.error = "failed", Failure(code=code, message=str(error))
        return b"".join([*begun, server_event(self._of_body("response.failed"))])

    def begun(self) -> Iterator[Event]:
        yield self._of_body("response.created")
        yield self._of_body("response.in_progress")

    def ended(self, ended: Ended) -> Iterator[Event]:
        is_cut, body = ended.reason == "length", self.body
        body.status = "incomplete" if is_cut else "completed"
        body.incomplete_details = Incomplete(reason="max_output_tokens") if is_cut else None
        body.completed_at = None if is_cut else now()
        body.usage = ResponseUsage.of(usage_of(self.batch, self.choices))
        body.system_fingerprint = system_fingerprint_of(self.batch, self.choices)
        body.metrics = metrics_of(self.choices)
        yield self._of_body(f"response.{body.status}")

    def called(self, call: Call) -> Iterator[Event]:
        tool = self._toolbox.called(call.name)
        common: dict[str, Any] = {"status": "in_progress", "call_id": call_id(self.batch.parser.formats.tools)}
        named: dict[str, Any] = {"name": tool.name, "namespace": tool.namespace}
        match tool.kind:
            case "function":
                item = CallItem(id=new_id("fc"), arguments="", **named, **common)
                yield from self._call(item, "function_call_arguments", "arguments", call.arguments, name=tool.name)
            case "custom":
                custom = CustomCallItem(id=new_id("ctc"), input="", **named, **common)
                yield from self._call(custom, "custom_tool_call_input", "input", as_input(call.arguments))
            case "tool_search":
                search = SearchCallItem(id=new_id("tsc"), arguments=json.loads(call.arguments), **common)
                yield self._add(search)
                yield self._done(search)

    def _call(self, item: CallItem | CustomCallItem, kind: str, member: str, text: str, **also: str) -> Iterator[Event]:
        """Adds a call whose `member` is this text. also: further members of the event at its end."""
        yield self._add(item)
        where = self._where(item)
        setattr(item, member, text)
        yield self._event(f"response.{kind}.delta", **where, delta=text)
        yield self._event(f"response.{kind}.done", **where, **also, **{member: text})
        yield self._done(item)

    def opened(self, *, is_thinking: bool) -> Iterator[Event]:
        thought = ReasoningItem(id=new_id("rs"), status="in_progress", summary=[], content=[])
        said = MessageItem(id=new_id("msg"), status="in_progress", content=[])
        yield self._add(thought if is_thinking else said)
        thought.content.append(ReasoningText(text=""))
        said.content.append(OutputText(text="", annotations=[], logprobs=[]))
        yield self._part("response.content_part.added", self._latest)

    def grown(self, text: str) -> Iterator[Event]:
        item = self._latest
        item.content[0].text += text
        yield self._text_event("delta", item, delta=text)

    def closed(self, *, is_cut: bool) -> Iterator[Event]:
        item = self._latest
        yield self._text_event("done", item, text=item.content[0].text)
        yield self._part("response.content_part.done", item)
        yield self._done(item, is_cut=is_cut)

    @property
    def _latest(self) -> MessageItem | ReasoningItem:
        """The open item."""
        item = self.body.output[-1]
        if not isinstance(item, MessageItem | ReasoningItem):
            raise RuntimeError("an item that was begun is not there")
        return item

    def _text_event(self, kind: str, item: MessageItem | ReasoningItem, **fields: Any) -> Event:
        """Returns a text event; messages get an empty list of log-probabilities, which are not supported here."""
        if isinstance(item, MessageItem):
            name, fields = f"response.output_text.{kind}", {**fields, "logprobs": []}
        else:
            name = f"response.reasoning_text.{kind}"
        return self._event(name, **self._where(item), content_index=0, **fields)

    def _part(self, name: str, item: MessageItem | ReasoningItem) -> Event:
        return self._event(name, **self._where(item), content_index=0, part=item.content[0])

    def _add(self, item: OutputItem) -> Event:
        self.body.output.append(item)
        return self._item("response.output_item.added", item)

    def _done(self, item: OutputItem, *, is_cut: bool = False) -> Event:
        item.status = "incomplete" if is_cut else "completed"
        return self._item("response.output_item.done", item)

    def _item(self, name: str, item: OutputItem) -> Event:
        return self._event(name, output_index=len(self.body.output) - 1, item=item)

    def _where(self, item: OutputItem) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": len(self.body.output) - 1}

    def _of_body(self, name: str) -> Event:
        return self._event(name, response=self.body)

    def _event(self, kind: str, /, **fields: Any) -> Event:
        return {"type": kind, "sequence_number": next(self._numbers), **fields}


def _begun_body(request: ResponsesRequest, generation: Generation, model: str) -> ResponseBody:
    """Returns a response without output, with the parameters of request and sampling."""
    choice, form = request.tool_choice, request.text.format if request.text is not None else None
    described = form.model_dump(by_alias=True, exclude_none=True) if form is not None else {"type": "text"}
    return ResponseBody(
        id=new_id("resp"),
        created_at=now(),
        status="in_progress",
        model=model,
        output=[],
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        temperature=generation.sampling.temperature,
        top_p=generation.sampling.top_p,
        tools=[tool.model_dump(exclude_unset=not isinstance(tool, FunctionTool)) for tool in request.tools or ()],
        tool_choice=choice.model_dump(exclude_unset=True) if isinstance(choice, BaseModel) else choice or "auto",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        text={"format": described, "verbosity": "medium"},
        reasoning={"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        service_tier=request.service_tier,
        metadata=request.metadata or {},
        user=request.user,
    )
