"""Buffers of what requests' texts have output and their users have not read yet, and a bound on all of them."""

import asyncio
from typing import TypeAlias

from draft_node.service.answer import Item, Piece
from goodspeed.errors import RequestRefused

Numbered: TypeAlias = tuple[int, Item | Exception]
"""An item, or the error that ended a text, after the text's number."""

MAX_UNREAD = 1 << 22
"""Most units of about 100 bytes that all requests hold: a token takes 4, each of its alternatives 1."""


class OutputBuffers:
    """Bounds the unread items of all requests; beyond `most` units the largest buffer goes, and its request fails."""

    def __init__(self, most: int = MAX_UNREAD) -> None:
        self._most = most
        self._buffers = set[OutputBuffer]()

    @property
    def num_held(self) -> int:
        """Units that all requests hold."""
        return sum(buffer.num_held for buffer in self._buffers)

    def begin(self) -> "OutputBuffer":
        """Returns the buffer of a new request, to be ended by `OutputBuffer.end`."""
        buffer = OutputBuffer(self)
        self._buffers.add(buffer)
        return buffer

    def forget(self, buffer: "OutputBuffer") -> None:
        self._buffers.discard(buffer)

    def check(self) -> None:
        """Drops the contents of the largest buffers until the others are within the bound."""
        while self.num_held > self._most:
            max(self._buffers, key=lambda buffer: buffer.num_held).drop()


class OutputBuffer:
    """A request's buffer: the texts' tasks put items in, the user's task takes them out."""

    def __init__(self, buffers: OutputBuffers) -> None:
        self.num_held = 0
        self._all = buffers
        self._queue: asyncio.Queue[Numbered] = asyncio.Queue()
        self._is_dropped = False

    def put(self, item: Numbered) -> None:
        if not self._is_dropped:
            self._queue.put_nowait(item)
            self.num_held += _size(item)
            self._all.check()

    async def get(self) -> Numbered:
        item = await self._queue.get()
        self.num_held -= _size(item)
        return item

    def drop(self) -> None:
        """Replaces all items by an error."""
        self._is_dropped = True
        while not self._queue.empty():
            self._queue.get_nowait()
        self.num_held = 0
        what = "too much of this answer was generated before it was read; read it faster, or ask for fewer logprobs"
        self._queue.put_nowait((0, RequestRefused("unread", what)))

    def end(self) -> None:
        """Gives up what is left; nothing may be put in afterwards."""
        self._all.forget(self)


def _size(item: Numbered) -> int:
    piece = item[1]
    if not isinstance(piece, Piece):
        return 0
    prompt = piece.prompt.logprobs if piece.prompt is not None else ()
    return sum(4 + len(token.top) for token in piece.tokens) + sum(4 + len(one.top_ids) for one in prompt)
