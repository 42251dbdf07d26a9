"""A response while it is written: pieces of a text in, events out. The whole response is what the events told.

Each run of text, each run of thinking and each call is an item of the output, in the order in which they came. Knows
nothing about sessions or requests.
"""

import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from draft_node.parsing.formats import ToolFormat
from draft_node.parsing.parts import Call
from draft_node.serve.api.response.calls import call_id
from draft_node.serve.api.response.responses import Marked
from draft_node.serve.api.responses.bodies import (
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
    Status,
)
from draft_node.serve.service import Piece


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
