"""The connections of a draft node's links: each is a channel with its send queue, and tasks that send and receive.

Link 0 has a connection from the beginning; the others are created and closed by actions of `core/core.py`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from draft_node.core.verify_nodes import Address
from goodspeed.errors import GoodSpeedError, MessageTooLarge, ProtocolError, TransportError
from goodspeed.serving.loop import stop
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.messages import DownMessage, UpMessage

logger = logging.getLogger("goodspeed.draft")

ConnectTo: TypeAlias = Callable[[Address], Awaitable[DraftChannel]]
"""Creates a channel to a verify node; raises a named error if that is impossible."""

Received: TypeAlias = Callable[[int, DownMessage | ProtocolError], None]
NotSent: TypeAlias = Callable[[int, UpMessage, MessageTooLarge | TransportError], None]
Unreachable: TypeAlias = Callable[[int, Exception], None]

TURN_S = 0.005
"""Time of handling messages after which other tasks get a turn."""


class Connection:
    """A channel with its send queue: `run` sends messages one at a time, in order, so that `put` never waits."""

    def __init__(
        self, channel: DraftChannel, failed: Callable[[UpMessage, MessageTooLarge | TransportError], None]
    ) -> None:
        """failed: called for every message that could not be sent; may put messages, or request a reconnection."""
        self.channel = channel
        self.tasks: list[asyncio.Task[None]] = []  # that send and receive
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
        if self._sending is not None and not self._sending.expired():
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
                self._reconnect()
            else:
                await self._send(message)
        self._something_waits.clear()

    def _reconnect(self) -> None:
        logger.info("reconnecting", extra={"endpoint": self.channel.endpoint})
        try:
            self.channel.transport.rebuild()
        except TransportError as error:  # the link asks again while it hears nothing
            logger.warning("cannot reconnect", extra={"why": error})

    async def _send(self, message: UpMessage) -> None:
        try:
            async with asyncio.timeout(None) as self._sending:
                await self.channel.send(message)
        except TimeoutError:
            logger.debug("a message was dropped with its connection")
        except (MessageTooLarge, TransportError) as error:
            self._sending = None
            self._failed(message, error)
        finally:
            self._sending = None


class Connections:
    """The connections by link number."""

    def __init__(
        self,
        first: DraftChannel,
        connect: ConnectTo | None,
        received: Received,
        not_sent: NotSent,
        unreachable: Unreachable,
    ) -> None:
        """received: called for a received message; not_sent: for an unsent one; unreachable: for a channel not created.

        connect: opens further channels; None: there is only link 0.
        """
        self._connect = connect
        self._received = received
        self._not_sent = not_sent
        self._unreachable = unreachable
        self._group: asyncio.TaskGroup | None = None
        self._by_link: dict[int, Connection] = {0: self._make(0, first)}
        self.traffic = first.traffic  # of all channels since the node started, closed ones included
        self._last = first  # most recently used channel, even if its link is closed
        self._early: dict[int, list[UpMessage]] = {}  # messages for links whose channel is being created

    def _make(self, link: int, channel: DraftChannel) -> Connection:
        return Connection(channel, partial(self._not_sent, link))

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Starts sending and receiving, in tasks of this group."""
        self._group = group
        for link, connection in self._by_link.items():
            self._start(group, link, connection)

    def _start(self, group: asyncio.TaskGroup, link: int, connection: Connection) -> None:
        connection.tasks = [
            group.create_task(self._listen(link, connection.channel)),
            group.create_task(connection.run()),
        ]

    async def _listen(self, link: int, channel: DraftChannel) -> None:
        while True:
            try:
                messages: list[DownMessage | ProtocolError] = [await channel.receive()]
            except ProtocolError as error:
                messages = [error]
            began = time.perf_counter()
            for message in messages + channel.receive_ready():
                self._received(link, message)
                if time.perf_counter() - began > TURN_S:  # first verdicts index their prompts
                    await asyncio.sleep(0)
                    began = time.perf_counter()

    def channel(self, link: int) -> DraftChannel:
        """Returns the link's channel; if it has none yet, the most recently used channel."""
        connection = self._by_link.get(link)
        if connection is not None:
            self._last = connection.channel
        return self._last

    def all(self) -> list[tuple[int, DraftChannel]]:
        return [(link, connection.channel) for link, connection in self._by_link.items()]

    def put(self, link: int, message: UpMessage) -> None:
        """Queues a message; drops one for a closed link."""
        if link in self._by_link:
            self._by_link[link].put(message)
        elif link in self._early:
            self._early[link].append(message)

    def connect(self, link: int, address: Address) -> None:
        """Creates a channel for a link; messages queue up meanwhile."""
        self._early[link] = []
        if self._group is not None:
            self._group.create_task(self._open(link, address))

    async def _open(self, link: int, address: Address) -> None:
        if self._connect is None:
            return
        try:
            channel = await self._connect(address)
        except (GoodSpeedError, OSError) as error:
            self._early.pop(link, None)
            self._unreachable(link, error)
            return
        early = self._early.pop(link, None)
        if early is None or self._group is None:  # the link was closed meanwhile
            channel.close()
            return
        channel.traffic = self.traffic
        connection = self._by_link[link] = self._make(link, channel)
        for message in early:
            connection.put(message)
        self._start(self._group, link, connection)

    def disconnect(self, link: int) -> None:
        """Closes a link's connection, after sending its queue."""
        self._early.pop(link, None)
        connection = self._by_link.pop(link, None)
        if connection is not None and self._group is not None:
            self._group.create_task(self._end(connection))

    async def _end(self, connection: Connection) -> None:
        try:
            await stop(*connection.tasks)
            await connection.flush()
        finally:
            connection.channel.close()

    def reconnect(self, link: int) -> None:
        """Replaces a link's connection; drops its queued messages."""
        if link in self._by_link:
            self._by_link[link].reconnect()

    def clear(self) -> None:
        for connection in self._by_link.values():
            connection.clear()

    async def flush(self) -> None:
        """Sends the queued messages; only while no sending task runs."""
        for connection in self._by_link.values():
            await connection.flush()

    def close(self) -> None:
        """Closes all connections; waits until what they were given is sent, at most half a second for each."""
        for connection in self._by_link.values():
            connection.channel.close()
