"""Whole answers and streams of chunks; the common part of chat completions and completions."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from pydantic_core import to_json

from draft_node.http.answer.choices import Choice, Json, system_fingerprint_of, usage_of
from draft_node.http.answer.shape import Shape, now
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import CompletionStreamOptions, TextRequest
from draft_node.http.schema.errors import ApiError
from draft_node.service.output_processor import Ended, Piece
from draft_node.service.token_text import Token
from goodspeed.serving.web.errors import error_body

DONE = b"data: [DONE]\n\n"


class Chunked(Shape):
    """A whole answer has all choices; a stream has chunks of one choice each, and a final one of none."""

    kind: ClassVar[str]  # `object` of a whole answer
    kind_of_chunks: ClassVar[str]

    def __init__(self, body: TextRequest, batch: Batch, model: str, prefix: str) -> None:
        super().__init__(batch)
        self.head: Json = {"id": f"{prefix}-{secrets.token_hex(16)}", "created": now(), "model": model}
        self._options = body.stream_options or CompletionStreamOptions()
        self._is_begun = False

    @abstractmethod
    def told(self, index: int, choice: Choice, ended: Ended) -> Json:
        """Returns a choice of a whole answer."""

    @abstractmethod
    def beginnings(self) -> Iterable[Json]:
        """Returns the chunks before the first item of any text."""

    @abstractmethod
    def piece(self, index: int, piece: Piece) -> Json | None:
        """Returns the chunk for a piece; None if the piece has nothing to send."""

    @abstractmethod
    def ending(self, index: int, ended: Ended) -> Json:
        """Returns a choice's final chunk."""

    def chunk(self, *choices: Json) -> Json:
        return {**self.head, "object": self.kind_of_chunks, "choices": choices}

    def ids_of(self, tokens: Iterable[Token]) -> Json:
        """Returns the `token_ids` member if requested, else no member."""
        return {"token_ids": [token.id for token in tokens]} if self.batch.returns_token_ids else {}

    def prompt_ids(self, index: int) -> Json:
        """Returns the `prompt_token_ids` member of a text if requested, else no member."""
        return {"prompt_token_ids": self.batch.texts[index].prompt} if self.batch.returns_token_ids else {}

    def whole(self) -> bytes:
        return to_json({**self.head, "object": self.kind, **self._of_all(), "choices": self._told()})

    def _told(self) -> Iterator[Json]:
        """Yields choice by choice: between them other threads get the GIL, and only one is in memory as objects."""
        for index, choice in enumerate(self.choices):
            if choice.ended is None:
                raise RuntimeError("a choice is told whole before its text has ended")
            yield self.told(index, choice, choice.ended)

    def _of_all(self) -> Json:
        """Returns the members that depend on all texts."""
        fingerprint = system_fingerprint_of(self.batch, self.choices)
        return {"system_fingerprint": fingerprint, "usage": usage_of(self.batch, self.choices)}

    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        new = [] if self._is_begun else list(self.beginnings())
        self._is_begun = True
        if isinstance(item, Piece):
            new += filter(None, (self.piece(index, part) for part in item.each()))
        else:
            new.append(self.ending(index, item))
        also: Json = {"system_fingerprint": system_fingerprint_of(self.batch, [self.choices[index]])}
        if self._options.continuous_usage_stats:
            also["usage"] = usage_of(self.batch, self.choices)
        elif self._options.include_usage:
            also["usage"] = None
        return [_event(each | also) for each in new]

    def last(self) -> list[bytes]:
        if not self._options.include_usage:
            return [DONE]
        return [_event(self.chunk() | self._of_all()), DONE]

    def broken(self, error: ApiError) -> bytes:
        body = error_body(error.status, str(error), error.code, error.param)
        return b"data: " + json.dumps(body).encode() + b"\n\n" + DONE


def _event(chunk: Json) -> bytes:
    return b"data: " + to_json(chunk) + b"\n\n"
