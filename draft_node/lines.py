"""The channels of a draft node's links, each with what waits to be sent on it and the task that listens to it.

Link 0 has a channel from the beginning; the others are made and ended as `core/core.py` says.
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
"""Makes a channel to a verify node; a named error where that cannot be."""

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
    """The channels by the numbers of their links."""

    def __init__(
        self,
        first: DraftChannel,
        connect: ConnectTo | None,
        heard: Heard,
        not_sent: NotSent,
        unreachable: Unreachable,
    ) -> None:
        """heard: told of every message of a link; not_sent: of every one that could not be sent on one."""
        self._connect = connect
        self._heard = heard
        self._not_sent = not_sent
        self._unreachable = unreachable
        self._group: asyncio.TaskGroup | None = None
        self._lines: dict[int, _Line] = {0: self._make(0, first)}
        self._gone = Traffic()  # what channels that are gone have moved
        self._last = first  # also after its link is gone
        self._early: dict[int, list[UpMessage]] = {}  # for links whose channel is being made

    def _make(self, link: int, channel: DraftChannel) -> _Line:
        return _Line(channel, Outgoing(channel, partial(self._not_sent, link)))

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Sends and listens from now on, by tasks of this group."""
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
        """The link's channel, or the last one that was used where it has none yet."""
        line = self._lines.get(link)
        if line is not None:
            self._last = line.channel
        return self._last

    def channels(self) -> list[tuple[int, DraftChannel]]:
        """All that there are, with their links."""
        return [(link, line.channel) for link, line in self._lines.items()]

    @property
    def traffic(self) -> Traffic:
        """Counts what all channels have moved since the node started, those that are gone included."""
        total = copy(self._gone)
        for line in self._lines.values():
            _add(total, line.channel.traffic)
        return total

    def put(self, link: int, message: UpMessage) -> None:
        """Queues a message; what is for a link that is gone is dropped."""
        if link in self._lines:
            self._lines[link].outgoing.put(message)
        elif link in self._early:
            self._early[link].append(message)

    def connect(self, link: int, address: Address) -> None:
        """Makes a channel for a link; what is sent on it meanwhile waits."""
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
        if early is None or self._group is None:  # it was given up meanwhile
            channel.close()
            return
        line = self._lines[link] = self._make(link, channel)
        for message in early:
            line.outgoing.put(message)
        self._start(self._group, link, line)

    def disconnect(self, link: int) -> None:
        """Ends a link's channel; what was sent on it leaves first, as far as that is possible at once."""
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
            else:  # nobody was ever there, and closing would wait for what is queued
                await line.channel.reconnect()
        finally:
            line.channel.close()
            _add(self._gone, line.channel.traffic)

    def reconnect(self, link: int) -> None:
        """Drops a link's connection with all that waits for it, and makes another."""
        if link in self._lines:
            self._lines[link].outgoing.reconnect()

    def clear(self) -> None:
        """Drops all that waits to be sent."""
        for line in self._lines.values():
            line.outgoing.clear()

    async def flush(self) -> None:
        """Sends what waits; only while no task does."""
        for line in self._lines.values():
            await line.outgoing.flush()

    def close(self) -> None:
        """Ends all channels; what was sent still leaves, within their links' bounds."""
        for line in self._lines.values():
            line.channel.close()


def _add(total: Traffic, traffic: Traffic) -> None:
    for entry in fields(Traffic):
        setattr(total, entry.name, getattr(total, entry.name) + getattr(traffic, entry.name))
