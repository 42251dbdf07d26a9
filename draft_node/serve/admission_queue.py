"""Places for so many at once, first come first served; who waits for one is counted. Knows nothing about what for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class AdmissionQueue:
    """A waiter that is cancelled gives up its place, and leaks none."""

    def __init__(self, num_slots: int) -> None:
        self.num_waiting = 0
        self._free = asyncio.Semaphore(num_slots)

    @property
    def is_full(self) -> bool:
        """Whether another one would have to wait."""
        return self._free.locked()

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None, None]:
        """Waits for a place, and holds it for as long as the context lasts."""
        self.num_waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.num_waiting -= 1
        try:
            yield
        finally:
            self._free.release()
