"""The queues in which users wait for their texts, as many as are served together. Knows nothing about sessions."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.serve.admission_queue import AdmissionQueue

Outbox: TypeAlias = "asyncio.Queue[Deliver | Finish | Fail]"


class Outboxes:
    """One queue for each user who has a slot; the others wait, first come first served."""

    def __init__(self, num_slots: int) -> None:
        self._slots = AdmissionQueue(num_slots)
        self._outboxes: dict[bytes, Outbox] = {}

    @property
    def num_running(self) -> int:
        """Users who have a slot."""
        return len(self._outboxes)

    @property
    def num_waiting(self) -> int:
        """Users who wait for one."""
        return self._slots.num_waiting

    @property
    def is_full(self) -> bool:
        """Whether another user would have to wait."""
        return self._slots.is_full

    @asynccontextmanager
    async def one(self, session_id: bytes) -> AsyncGenerator[Outbox, None]:
        """A queue for as long as the context lasts, once a slot is free."""
        async with self._slots.one():
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
