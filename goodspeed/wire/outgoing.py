"""A draft node's messages on their way into its channel: one at a time, in the order in which they were put.

Several tasks put messages, and any of them may have to wait while the line is busy. Without this order a Close could
overtake the OpenSession before it. Knows nothing about what a message means.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from goodspeed.errors import MessageTooLarge, TransportError
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.messages import UpMessage

logger = logging.getLogger("goodspeed.draft")

Failed: TypeAlias = Callable[[UpMessage, MessageTooLarge | TransportError], None]


class Outgoing:
    """A queue in front of a channel. Whoever flushes sends everything that waits, their own messages or not."""

    def __init__(self, channel: DraftChannel, failed: Failed) -> None:
        """failed: told of every message that could not be sent; may put others, or ask for a reconnection."""
        self._channel = channel
        self._failed = failed
        self._waiting: deque[UpMessage | None] = deque()  # None: reconnect
        self._turn = asyncio.Lock()

    def put(self, message: UpMessage) -> None:
        """Sends it with the next flush."""
        self._waiting.append(message)

    def reconnect(self) -> None:
        """Makes another connection with the next flush. What waits was for the old one, and is dropped with it."""
        self.clear()
        self._waiting.append(None)

    def clear(self) -> None:
        """Drops whatever waits."""
        self._waiting.clear()

    async def flush(self) -> None:
        """Returns when nothing waits any more. A caller that is cancelled leaves the rest to the next one."""
        async with self._turn:
            while self._waiting:
                message = self._waiting.popleft()
                try:
                    await self._transmit(message)
                except asyncio.CancelledError:
                    self._waiting.appendleft(message)
                    raise

    async def _transmit(self, message: UpMessage | None) -> None:
        if message is None:
            logger.info("reconnecting", extra={"endpoint": self._channel.endpoint})
            await self._channel.reconnect()
            return
        try:
            await self._channel.send(message)
        except (MessageTooLarge, TransportError) as error:
            self._failed(message, error)
