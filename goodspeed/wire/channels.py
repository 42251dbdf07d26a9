"""Channels: typed messages over any transport that moves frames, for a draft node and for the verify node.

A channel encodes, decodes, checks the framing and counts.
"""

import asyncio
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from goodspeed.errors import MalformedMessage, ProtocolError, TransportError
from goodspeed.wire.codec import decode_down, decode_up, encode
from goodspeed.wire.messages import DownMessage, UpMessage

READY_BYTES = 4 << 20
"""`receive_ready` and `arriving` stop after this many bytes, so that one turn of the event loop stays short."""

READY_MESSAGES = 256

SEND_TIMEOUT_S = 3.0
"""A draft node that cannot send for so long reconnects."""


class Delivery(Enum):
    """Result of `put`. SENT: the message is queued; BUSY and GONE: the transport did not take it."""

    SENT = "sent"
    BUSY = "busy"  # the peer is too slow: its high-water mark is reached; retain the message and retry
    GONE = "gone"  # the peer is not connected


class Transport(Protocol):
    """Moves lists of frames and never blocks."""

    endpoint: str

    def put(self, frames: list[bytes]) -> Delivery: ...
    def take(self) -> list[bytes] | None:
        """Returns the next message's frames; None if no message waits.

        At the verify node the first frame is the sender's name. A barred sender's message is reduced to that frame. An
        empty list stands for the remainder of a message that the transport drops.
        """

    async def readable(self) -> None:
        """Waits until `take` may return frames; TransportError when the transport is closed."""

    async def writable(self) -> None:
        """Waits until `put` may succeed; TransportError when the transport is closed."""

    def close(self) -> None: ...


class DraftTransport(Transport, Protocol):
    """A draft node's transport, which has one connection. A new connection must begin with a Hello."""

    def failure(self) -> str | None:
        """Returns once why the latest connection attempt was refused, else None; the caller rebuilds later."""

    def broke(self) -> bool:
        """True if the connection ended since the previous call. It reconnects; messages in flight are lost."""

    def rebuild(self) -> None:
        """Replaces the connection and drops its queue. TransportError if that is impossible: then both stay."""


class VerifyTransport(Transport, Protocol):
    """The verify node's transport, which names the sender of each message."""

    def bar(self, names: Container[bytes]) -> None:
        """Drops messages of these peers or keys, and cuts their connections. names: consulted at every message."""

    @property
    def num_cut(self) -> int:
        """Number of connections that this side cut."""


@dataclass
class Traffic:
    """Counters of a channel since its creation; the channels of one draft node share one."""

    num_sent: int = 0
    num_received: int = 0  # including malformed and unheard messages
    num_malformed: int = 0
    num_busy: int = 0  # messages not sent because the peer is too slow
    num_gone: int = 0  # messages not sent because the peer is not connected
    num_unheard: int = 0  # messages of barred peers, not decoded
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """A draft node's message, or the error from decoding it. peer: the name to send answers to."""

    peer: bytes
    message: UpMessage | ProtocolError
    num_bytes: int
    principal: str | None = None  # the sender's authenticated public key; None on a transport without keys


class DraftChannel:
    """A draft node's channel to the verify node."""

    def __init__(self, transport: DraftTransport, *, max_message_bytes: int) -> None:
        self.traffic = Traffic()
        self.max_send_bytes = max_message_bytes  # to be lowered to Welcome's limit
        self._max_receive_bytes = max_message_bytes
        self.transport = transport
        self.endpoint = transport.endpoint

    async def send(self, message: UpMessage) -> None:
        """Queues a message. MessageTooLarge; TransportError if the queue stays full for SEND_TIMEOUT_S."""
        data = encode(message, self.max_send_bytes)
        if self.transport.put([data]) is not Delivery.SENT:
            await self._send_later(data)
        self.traffic.num_sent += 1
        self.traffic.bytes_sent += len(data)

    async def _send_later(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                while self.transport.put([data]) is not Delivery.SENT:
                    await self.transport.writable()
        except TimeoutError:
            self.traffic.num_busy += 1
            raise TransportError(
                f"the verify node at {self.endpoint} has received no message for {SEND_TIMEOUT_S:g} s; reconnect"
            ) from None

    async def receive(self) -> DownMessage:
        """Returns the next message. ProtocolError if its bytes are invalid; the channel stays usable."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        while (frames := self.transport.take()) is None:
            await self.transport.readable()
        return self._open(frames)

    def receive_ready(self) -> list[DownMessage | ProtocolError]:
        """Returns the messages that have arrived, without waiting."""
        messages: list[DownMessage | ProtocolError] = []
        for frames in _pending(self.transport):
            try:
                messages.append(self._open(frames))
            except ProtocolError as error:
                messages.append(error)
        return messages

    def _open(self, frames: list[bytes]) -> DownMessage:
        self.traffic.num_received += 1
        self.traffic.bytes_received += _size(frames)
        try:
            return decode_down(_single(frames), self._max_receive_bytes)
        except ProtocolError:
            self.traffic.num_malformed += 1
            raise

    def close(self) -> None:
        """Closes the channel; queued messages are still sent, within the transport's linger time."""
        self.transport.close()


class VerifyChannel:
    """The verify node's channel to all draft nodes."""

    def __init__(self, transport: VerifyTransport, *, max_message_bytes: int, authenticated: bool = False) -> None:
        """authenticated: the transport puts the sender's key into the frame after its name."""
        self.traffic = Traffic()
        self.emptied = False  # the latest `arriving` took messages, barred peers' included, and emptied the transport
        self.has_more = False  # the latest `arriving` took messages, and more may wait
        self.max_message_bytes = max_message_bytes
        self.transport = transport
        self.endpoint = transport.endpoint  # that draft nodes connect to, with the actual port
        self._authenticated = authenticated

    def send(self, peer: bytes, message: DownMessage) -> Delivery:
        """Queues a message for a peer without waiting; returns the transport's answer. Raises MessageTooLarge."""
        data = encode(message, self.max_message_bytes)
        delivery = self.transport.put([peer, data])
        if delivery is Delivery.SENT:
            self.traffic.num_sent += 1
            self.traffic.bytes_sent += len(data)
        elif delivery is Delivery.BUSY:
            self.traffic.num_busy += 1
        else:
            self.traffic.num_gone += 1
        return delivery

    async def readable(self) -> None:
        """Waits until frames have arrived, possibly from barred peers alone."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        await self.transport.readable()

    def arriving(self) -> Iterator[Received]:
        """Yields the messages that have arrived, up to READY_BYTES and READY_MESSAGES; repeat until `emptied`.

        Each is decoded on demand, and the rest stay in the transport, which serves several peers in turn.
        """
        self.emptied = self.has_more = False
        num_taken = num_bytes = 0
        for frames in _pending(self.transport):
            self.has_more = True
            num_taken, num_bytes = num_taken + 1, num_bytes + _size(frames)
            if len(frames) > 1:
                yield self._open(frames)
            elif frames:  # of a barred peer
                self.traffic.num_received += 1
                self.traffic.num_unheard += 1
        self.emptied = 0 < num_taken < READY_MESSAGES and num_bytes < READY_BYTES
        self.has_more = num_taken > 0 and not self.emptied

    def _open(self, frames: list[bytes]) -> Received:
        principal = frames.pop(1).decode() if self._authenticated else None
        peer, payload = frames[0], frames[1:]
        num_bytes = _size(payload)
        self.traffic.num_received += 1
        self.traffic.bytes_received += num_bytes
        try:
            return Received(peer, decode_up(_single(payload), self.max_message_bytes), num_bytes, principal)
        except ProtocolError as error:
            self.traffic.num_malformed += 1
            return Received(peer, error, num_bytes, principal)

    def close(self) -> None:
        self.transport.close()


def _pending(transport: Transport) -> Iterator[list[bytes]]:
    num_bytes = num_messages = 0
    while num_bytes < READY_BYTES and num_messages < READY_MESSAGES and (frames := transport.take()) is not None:
        num_bytes += _size(frames)
        num_messages += 1
        yield frames


def _single(payload: list[bytes]) -> bytes:
    if len(payload) != 1:
        raise MalformedMessage(f"{len(payload)} frames instead of one")
    return payload[0]


def _size(frames: list[bytes]) -> int:
    return sum(len(frame) for frame in frames)
