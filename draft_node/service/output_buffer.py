"""Buffers output that users have not read yet, bounded over all requests."""

import asyncio
from typing import TypeAlias

from draft_node.service.output_processor import Item, Piece
from goodspeed.errors import RequestRefused

Numbered: TypeAlias = tuple[int, Item | Exception]
"""An item, or the error that ended a text, after the text's number."""

MAX_UNREAD = 1 << 22
"""Most units of about 100 bytes that all requests hold: a token takes 4, each of its alternatives 1."""


class OutputBuffer:
    """A request's unread items: the texts' tasks put items in, the user's task takes them out.

    Beyond MAX_UNREAD units of all requests the fullest buffer is dropped, and its request fails.
    """

    def __init__(self, buffers: "set[OutputBuffer]") -> None:
        """buffers: those of all unfinished requests; this one is added, until `end`."""
        self.num_held = 0  # units
        self._buffers = buffers
        self._items: asyncio.Queue[Numbered] = asyncio.Queue()
        self._is_dropped = False
        buffers.add(self)

    def put(self, item: Numbered) -> bool:
        """Adds an item; returns False if the buffer was dropped, so that no more need be generated."""
        if self._is_dropped:
            return False
        self._items.put_nowait(item)
        self.num_held += _size(item)
        while sum(buffer.num_held for buffer in self._buffers) > MAX_UNREAD:
            max(self._buffers, key=lambda buffer: buffer.num_held)._drop()
        return not self._is_dropped

    async def get(self) -> Numbered:
        item = await self._items.get()
        self.num_held -= _size(item)
        return item

    def _drop(self) -> None:
        """Replaces all items by an error."""
        self._is_dropped = True
        while not self._items.empty():
            self._items.get_nowait()
        self.num_held = 0
        what = "too much of this answer was generated before it was read; read it faster, or ask for fewer logprobs"
        self._items.put_nowait((0, RequestRefused("unread", what)))

    def end(self) -> None:
        """Gives up what is left; nothing may be put in afterwards."""
        self._buffers.discard(self)


def _size(item: Numbered) -> int:
    piece = item[1]
    if not isinstance(piece, Piece):
        return 0
    prompt = piece.prompt.logprobs if piece.prompt is not None else ()
    return sum(4 + len(token.top) for token in piece.tokens) + sum(4 + len(one.top_ids) for one in prompt)
