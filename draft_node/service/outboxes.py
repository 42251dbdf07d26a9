"""The queues in which users find what comes of their texts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from draft_node.core.actions import Deliver, Fail, Finish

Outbox: TypeAlias = "asyncio.Queue[Deliver | Finish | Fail]"


class Outboxes:
    """One queue for each user who is there."""

    def __init__(self) -> None:
        self._outboxes: dict[bytes, Outbox] = {}

    @contextmanager
    def one(self, session_id: bytes) -> Iterator[Outbox]:
        """A queue for as long as the context lasts."""
        outbox: Outbox = asyncio.Queue()
        self._outboxes[session_id] = outbox
        try:
            yield outbox
        finally:
            del self._outboxes[session_id]

    def tell(self, session_id: bytes, item: Deliver | Finish | Fail) -> None:
        """Puts an item into the user's queue; nothing happens once the user has left."""
        if (outbox := self._outboxes.get(session_id)) is not None:
            outbox.put_nowait(item)
