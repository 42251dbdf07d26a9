"""Answers of `responses` and `messages`: a text becomes items or blocks, whole or as events."""

import secrets
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic_core import to_json

from draft_node.http.answer.shape import Shape
from draft_node.http.ask.generation import Batch
from draft_node.parsing.formats import Call, ParsedPart, Thinking
from draft_node.service.output_processor import Ended, Piece

Event: TypeAlias = dict[str, Any]
"""An event with its `type`. It may refer to parts of the body, which change after it: serialize it at once."""


def server_event(event: Event) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), to_json(event))


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class Itemised(Shape):
    """One answer of runs of text, runs of reasoning, and calls; each of them extends the body and yields events."""

    def __init__(self, batch: Batch, body: dict[str, Any]) -> None:
        """body: the answer without its output."""
        super().__init__(batch)
        self.body = body
        self._is_begun = False
        self._open: type[ParsedPart] | None = None  # what the unfinished item has: Thinking or Content; None: no item

    @abstractmethod
    def begun(self) -> Iterator[Event]:
        """Begins the answer."""

    @abstractmethod
    def opened(self, *, is_thinking: bool) -> Iterator[Event]:
        """Begins an item of reasoning or text."""

    @abstractmethod
    def grown(self, text: str) -> Iterator[Event]:
        """Adds text to the open item."""

    @abstractmethod
    def closed(self, *, is_cut: bool) -> Iterator[Event]:
        """Finishes the open item. is_cut: max_tokens ended it."""

    @abstractmethod
    def called(self, call: Call) -> Iterator[Event]:
        """Adds a complete call; its arguments come in one delta."""

    @abstractmethod
    def ended(self, ended: Ended) -> Iterator[Event]:
        """Finishes the answer."""

    def whole(self) -> bytes:
        [choice] = self.choices
        for item in (Piece(tuple(choice.parts)), choice.ended):
            if item is not None:
                list(self._events_of(item))
        return to_json(self.body)

    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        return [server_event(event) for event in self._events_of(item)]

    def last(self) -> list[bytes]:
        return []

    def begin(self) -> Iterator[Event]:
        if not self._is_begun:
            self._is_begun = True
            yield from self.begun()

    def _events_of(self, item: Piece | Ended) -> Iterator[Event]:
        yield from self.begin()
        if isinstance(item, Ended):
            yield from self._close(is_cut=item.reason == "length")
            yield from self.ended(item)
            return
        for part in item.parts:
            if isinstance(part, Call):
                yield from self._close()
                yield from self.called(part)
                continue
            if self._open is not type(part):
                yield from self._close()
                self._open = type(part)
                yield from self.opened(is_thinking=isinstance(part, Thinking))
            yield from self.grown(part.text)

    def _close(self, *, is_cut: bool = False) -> Iterator[Event]:
        if self._open is not None:
            self._open = None
            yield from self.closed(is_cut=is_cut)
