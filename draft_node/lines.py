"""The channels of a draft node's links, each with its send queue and its receiving task.

Link 0 has a channel from the beginning; the others are created and closed by actions of `core/core.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TypeAlias

from draft_node.core.directory import Address
from draft_node.outgoing import Outgoing
from goodspeed.errors import GoodSpeedError, MessageTooLarge, ProtocolError, TransportError
from goodspeed.wire.channels import DraftChannel, Traffic
from goodspeed.wire.messages import DownMessage, UpMessage

ConnectTo: TypeAlias = Callable[[Address], Awaitable[DraftChannel]]
"""Creates a channel to a verify node; raises a named error if that is impossible."""

Heard: TypeAlias = Callable[[int, DownMessage | ProtocolError], None]
NotSent: TypeAlias = Callable[[int, UpMessage, MessageTooLarge | TransportError], None]
Unreachable: TypeAlias = Callable[[int, Exception], None]


@dataclass(slots=True)
class _Line:
    """One link's channel and its tasks."""

    channel: DraftChannel
    outgoing: Outgoing
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)


class Lines:
    """The channels by link number."""

    def __init__(
        self,
        first: DraftChannel,
        connect: ConnectTo | None,
        heard: Heard,
        not_sent: NotSent,
        unreachable: Unreachable,
    ) -> None:
        """heard: called for a received message; not_sent: for an unsent one; unreachable: for a channel not created.

        connect: opens further channels; None: there is only link 0.
        """
        self._connect = connect
        self._heard = heard
        self._not_sent = not_sent
        self._unreachable = unreachable
        self._group: asyncio.TaskGroup | None = None
        self._lines: dict[int, _Line] = {0: self._make(0, first)}
        self._gone = Traffic()  # of closed channels
        self._last = first  # most recently used channel, even if its link is closed
        self._early: dict[int, list[UpMessage]] = {}  # messages for links whose channel is being created

    def _make(self, link: int, channel: DraftChannel) -> _Line:
        return _Line(channel, Outgoing(channel, partial(self._not_sent, link)))

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Starts sending and receiving, in tasks of this group."""
        self._group = group
        for link, line in self._lines.items():
            self._start(group, link, line)

    def _start(self, group: asyncio.TaskGroup, link: int, line: _Line) -> None:
        line.tasks = [group.create_task(self._listen(link, line.channel)), group.create_task(line.outgoing.run())]

    async def _listen(self, link: int, channel: DraftChannel) -> None:
        while True:
            try:
                messages: list[DownMessage | ProtocolError] = [await channel.receive()]
            except ProtocolError as error:
                messages = [error]
            for message in messages + channel.receive_ready():
                self._heard(link, message)

    def channel(self, link: int) -> DraftChannel:
        """Returns the link's channel; if it has none yet, the most recently used channel."""
        line = self._lines.get(link)
        if line is not None:
            self._last = line.channel
        return self._last

    def channels(self) -> list[tuple[int, DraftChannel]]:
        """Returns all channels with their link numbers."""
        return [(link, line.channel) for link, line in self._lines.items()]

    @property
    def traffic(self) -> Traffic:
        """Traffic of all channels since the node started, closed ones included."""
        total = copy(self._gone)
        for line in self._lines.values():
            _add(total, line.channel.traffic)
        return total

    def put(self, link: int, message: UpMessage) -> None:
        """Queues a message; drops one for a closed link."""
        if link in self._lines:
            self._lines[link].outgoing.put(message)
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
        except (GoodSpeedError, OSError) as error:  # ZeroMQ's errors are among these
            self._early.pop(link, None)
            self._unreachable(link, error)
            return
        early = self._early.pop(link, None)
        if early is None or self._group is None:  # the link was closed meanwhile
            channel.close()
            return
        line = self._lines[link] = self._make(link, channel)
        for message in early:
            line.outgoing.put(message)
        self._start(self._group, link, line)

    def disconnect(self, link: int) -> None:
        """Closes a link's channel, after sending its queue if the verify node ever answered."""
        self._early.pop(link, None)
        line = self._lines.pop(link, None)
        if line is not None and self._group is not None:
            self._group.create_task(self._end(line))

    async def _end(self, line: _Line) -> None:
        try:
            for task in line.tasks:
                task.cancel()
            await asyncio.gather(*line.tasks, return_exceptions=True)
            if line.channel.traffic.num_received:
                await line.outgoing.flush()
            else:  # the verify node never answered, and closing would wait for the queued messages
                await line.channel.reconnect()
        finally:
            line.channel.close()
            _add(self._gone, line.channel.traffic)

    def reconnect(self, link: int) -> None:
        """Replaces a link's connection; drops its queued messages."""
        if link in self._lines:
            self._lines[link].outgoing.reconnect()

    def clear(self) -> None:
        """Drops all queued messages."""
        for line in self._lines.values():
            line.outgoing.clear()

    async def flush(self) -> None:
        """Sends the queued messages; only while no sending task runs."""
        for line in self._lines.values():
            await line.outgoing.flush()

    def close(self) -> None:
        """Closes all channels; messages already passed to a channel still go out within its limits."""
        for line in self._lines.values():
            line.channel.close()


def _add(total: Traffic, traffic: Traffic) -> None:
    for entry in fields(Traffic):
        setattr(total, entry.name, getattr(total, entry.name) + getattr(traffic, entry.name))
