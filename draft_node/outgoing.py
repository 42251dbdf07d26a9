"""The send queue of a channel: one task sends messages one at a time, in order, so that `put` never waits."""

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
    """A send queue in front of a channel; `run` sends its messages."""

    def __init__(self, channel: DraftChannel, failed: Failed) -> None:
        """failed: called for every message that could not be sent; may put messages, or request a reconnection."""
        self._channel = channel
        self._failed = failed
        self._waiting: deque[UpMessage | None] = deque()  # None: reconnect
        self._something_waits = asyncio.Event()
        self._sending: asyncio.Timeout | None = None  # of the message that is being sent

    def put(self, message: UpMessage) -> None:
        """Queues a message behind all others."""
        self._waiting.append(message)
        self._something_waits.set()

    def reconnect(self) -> None:
        """Drops all messages, which were for the old connection, and queues a reconnection."""
        self.clear()
        self._waiting.append(None)
        self._something_waits.set()

    def clear(self) -> None:
        """Drops all messages, including the one being sent."""
        self._waiting.clear()
        if self._sending is not None:
            self._sending.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Sends until cancelled. Raises what `failed` raises."""
        while True:
            await self._something_waits.wait()
            await self.flush()

    async def flush(self) -> None:
        """Sends until the queue is empty; never concurrently with `run`."""
        while self._waiting:
            message = self._waiting.popleft()
            if message is None:
                logger.info("reconnecting", extra={"endpoint": self._channel.endpoint})
                await self._channel.reconnect()
            else:
                await self._send(message)
        self._something_waits.clear()

    async def _send(self, message: UpMessage) -> None:
        try:
            async with asyncio.timeout(None) as self._sending:
                await self._channel.send(message)
        except TimeoutError:
            logger.debug("a message was dropped with its connection")
        except (MessageTooLarge, TransportError) as error:
            self._sending = None
            self._failed(message, error)
        finally:
            self._sending = None
