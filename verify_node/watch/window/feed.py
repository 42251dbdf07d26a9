"""Snapshots as server-sent events: made while somebody looks, at most a few a second, one for everybody.

There are no queues. Each viewer takes what is newest when it can take more, so one that stops reading misses snapshots
and costs nothing. Knows nothing about HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from verify_node.watch.window.snapshot import Snapshot

PERIOD_S = 0.4
MAX_VIEWERS = 32

RETRY = b"retry: 1000\n\n"
"""What a browser is told: after so many milliseconds it tries again when we are away."""


class Feed:
    """The newest snapshot for all who look."""

    def __init__(self, take: Callable[[float], Snapshot], clock: Callable[[], float]) -> None:
        """clock: seconds; `take` is given its time."""
        self.num_viewers = 0
        self.num_taken = 0
        self._take = take
        self._clock = clock
        self._event = b""
        self._due = 0.0
        self._ended = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.num_viewers >= MAX_VIEWERS

    async def events(self) -> AsyncGenerator[bytes, None]:
        """One event after another, until the feed ends; none when others took the last place in the meantime."""
        if self.is_full:
            return
        self.num_viewers += 1
        try:
            yield RETRY
            while not self._ended.is_set():
                yield self._newest()
                await self._pause()
        finally:
            self.num_viewers -= 1

    def end(self) -> None:
        """The node stops: nobody is to be waited for."""
        self._ended.set()

    def _newest(self) -> bytes:
        now = self._clock()
        if now >= self._due:
            self._event = b"data: " + msgspec.json.encode(self._take(now)) + b"\n\n"
            self._due = now + 0.9 * PERIOD_S  # a viewer that wakes a moment early shall not wait for another turn
            self.num_taken += 1
        return self._event

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PERIOD_S):
                await self._ended.wait()
        except TimeoutError:
            pass
