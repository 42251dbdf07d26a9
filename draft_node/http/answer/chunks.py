"""Whole answers and streams of chunks; the common part of chat completions and completions."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from draft_node.http.answer.choices import Choice, system_fingerprint_of, usage_of
from draft_node.http.answer.shape import Shape, now
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import CompletionStreamOptions, TextRequest
from draft_node.http.schema.errors import ApiError
from draft_node.service.answer import Ended, Piece
from draft_node.service.tokens import Token
from goodspeed.serving.web.bodies import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    Completion,
    CompletionChoice,
    Usage,
    json_with,
)

Chunk = ChatChunk | Completion

DONE = b"data: [DONE]\n\n"


class Chunked(Shape):
    """A whole answer is a frame around choices; a stream has chunks of one choice each, and a final one of none."""

    def __init__(self, body: TextRequest, batch: Batch, model: str, prefix: str) -> None:
        super().__init__(batch)
        self.head: dict[str, Any] = {"id": f"{prefix}-{secrets.token_hex(16)}", "created": now(), "model": model}
        self._options = body.stream_options or CompletionStreamOptions()
        self._is_begun = False

    @abstractmethod
    def frame(self, usage: Usage) -> ChatCompletion | Completion:
        """Returns a whole answer without its choices."""

    @abstractmethod
    def told(self, index: int, choice: Choice) -> ChatChoice | CompletionChoice:
        """Returns a choice of a whole answer."""

    @abstractmethod
    def beginnings(self) -> Iterable[Chunk]:
        """Returns the chunks before the first item of any text."""

    @abstractmethod
    def piece(self, index: int, piece: Piece) -> Chunk | None:
        """Returns the chunk for a piece; None if the piece has nothing to send."""

    @abstractmethod
    def ending(self, index: int, ended: Ended) -> Chunk:
        """Returns a choice's final chunk."""

    @abstractmethod
    def without_choices(self) -> Chunk:
        """Returns a chunk without choices, for the usage."""

    def ids_of(self, tokens: Iterable[Token]) -> dict[str, Any]:
        """Returns the `token_ids` member if requested, else no member."""
        return {"token_ids": [token.id for token in tokens]} if self.batch.returns_token_ids else {}

    def show_prompt(self, shown: ChatCompletion | ChatChunk | CompletionChoice, index: int) -> None:
        """Adds the token ids of a text's prompt if requested."""
        if self.batch.returns_token_ids:
            shown.prompt_token_ids = list(self.batch.texts[index].prompt)

    def whole(self) -> bytes:
        """Serializes choice by choice: between them other threads get the GIL, and only one is in memory as objects."""
        frame = self.frame(usage_of(self.batch, self.choices))
        frame.system_fingerprint = system_fingerprint_of(self.batch, self.choices)
        written = ",".join(
            self.told(i, choice).model_dump_json(exclude_unset=True) for i, choice in enumerate(self.choices)
        )
        return json_with(frame, "choices", written).encode()

    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        new = [] if self._is_begun else list(self.beginnings())
        self._is_begun = True
        if isinstance(item, Piece):
            new += filter(None, (self.piece(index, part) for part in item.each()))
        else:
            new.append(self.ending(index, item))
        for each in new:
            each.system_fingerprint = system_fingerprint_of(self.batch, [self.choices[index]])
            if self._options.continuous_usage_stats:
                each.usage = usage_of(self.batch, self.choices)
            elif self._options.include_usage:
                each.usage = None
        return [_event(each) for each in new]

    def last(self) -> list[bytes]:
        if not self._options.include_usage:
            return [DONE]
        last = self.without_choices()
        last.usage = usage_of(self.batch, self.choices)
        last.system_fingerprint = system_fingerprint_of(self.batch, self.choices)
        return [_event(last), DONE]

    def broken(self, error: ApiError) -> bytes:
        return b"data: " + json.dumps(error.body).encode() + b"\n\n" + DONE


def _event(chunk: BaseModel) -> bytes:
    return b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n"
