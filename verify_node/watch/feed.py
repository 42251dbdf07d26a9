"""Server-sent events of snapshots. Takes a few snapshots per second while there are viewers, shared by all viewers.

There are no queues. A viewer gets the newest snapshot when it can receive one, so a viewer that stops reading misses
some and costs nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from verify_node.watch.snapshot import Snapshot

PERIOD_S = 0.4
MAX_VIEWERS = 32

RETRY = b"retry: 1000\n\n"
"""Sets a browser's delay before it reconnects, in milliseconds."""


class Feed:
    """The newest snapshot, for all viewers."""

    def __init__(self, take: Callable[[float], Snapshot], clock: Callable[[], float]) -> None:
        """take: takes a snapshot; its argument is the time by `clock`, in seconds."""
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
        """Yields events until the feed ends; yields none if the feed is full."""
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
        """Ends all viewers' events, as the node stops."""
        self._ended.set()

    def _newest(self) -> bytes:
        now = self._clock()
        if now >= self._due:
            self._event = b"data: " + msgspec.json.encode(self._take(now)) + b"\n\n"
            self._due = now + 0.9 * PERIOD_S  # a viewer that wakes a moment early must not wait for another period
            self.num_taken += 1
        return self._event

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PERIOD_S):
                await self._ended.wait()
        except TimeoutError:
            pass
