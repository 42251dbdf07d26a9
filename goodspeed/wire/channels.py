"""Channels: the two ends of the wire send and receive messages over any link that moves frames.

Applies the codec, the framing rule and the counters. Users import these names from `transport.py`.
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
"""`receive_ready` stops after this many bytes, so that one turn of the event loop stays short."""

READY_MESSAGES = 256


class Delivery(Enum):
    """Result of giving a message to a link: SENT is queued; with any other the link did not take it."""

    SENT = "sent"
    BUSY = "busy"  # the peer does not keep up: its high-water mark is reached. Keep the message, try later
    GONE = "gone"  # no such peer is connected


class Link(Protocol):
    """Moves lists of frames and never blocks."""

    endpoint: str

    def put(self, frames: list[bytes]) -> Delivery: ...
    def take(self) -> list[bytes] | None:
        """Returns the next message's frames, or None where no message waits.

        At the verify node the first frame is the sender's name; a barred sender's message is that frame alone, and no
        frames at all are the rest of a message that is thrown away.
        """

    async def readable(self) -> None:
        """Returns when `take` may have something; TransportError when the link is closed."""

    async def writable(self) -> None:
        """Returns when `put` may work again; TransportError when the link is closed."""

    def close(self) -> None: ...


class DraftEnd(Link, Protocol):
    """A draft node's link, which has one connection."""

    def failure(self) -> str | None:
        """Returns, once, why the newest connection attempt was refused; the caller rebuilds the link later."""

    def broke(self) -> bool:
        """True if the connection ended since the last call; the link reconnects, and messages in flight are lost."""

    def rebuild(self) -> None: ...


class VerifyEnd(Link, Protocol):
    """The verify node's link, which names the sender of each message."""

    def bar(self, names: Container[bytes]) -> None:
        """Drops messages of these peers or keys, and cuts their connections; `names` is read anew every time."""

    @property
    def num_cut(self) -> int:
        """Connections ended from this side."""


@dataclass
class Traffic:
    """Counters of a channel since it was made."""

    num_sent: int = 0
    num_received: int = 0  # malformed ones and unheard ones too
    num_malformed: int = 0
    num_busy: int = 0  # given to send, not taken, and told so: the peer does not keep up
    num_gone: int = 0  # the same, since there is no such peer
    num_unheard: int = 0  # of peers that are barred: not decoded
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """One message from a draft node, or the error that its bytes were; `peer` is the name to answer to."""

    peer: bytes
    message: UpMessage | ProtocolError
    num_bytes: int
    principal: str | None = None  # the public key that the sender proved to have; None on a link without keys


class DraftChannel:
    """A draft node's channel to the verify node."""

    def __init__(self, link: DraftEnd, *, max_message_bytes: int, send_timeout_s: float = 3.0) -> None:
        self.traffic = Traffic()
        self.max_send_bytes = max_message_bytes  # lower it to what Welcome says
        self._max_receive_bytes = max_message_bytes
        self._link = link
        self._send_timeout_s = send_timeout_s

    @property
    def endpoint(self) -> str:
        return self._link.endpoint

    async def send(self, message: UpMessage) -> None:
        """Queues a message. MessageTooLarge; TransportError when the queue stays full for the link's send timeout."""
        data = encode(message, self.max_send_bytes)
        if self._link.put([data]) is not Delivery.SENT:
            await self._send_later(data)
        self.traffic.num_sent += 1
        self.traffic.bytes_sent += len(data)

    async def _send_later(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                while self._link.put([data]) is not Delivery.SENT:
                    await self._link.writable()
        except TimeoutError:
            self.traffic.num_busy += 1
            raise TransportError(
                f"the verify node at {self.endpoint} has taken no message for {self._send_timeout_s:g} s; reconnect"
            ) from None

    async def receive(self) -> DownMessage:
        """Returns the next message. ProtocolError for bytes that are none; the channel stays usable."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        while (frames := self._link.take()) is None:
            await self._link.readable()
        return self._open(frames)

    def receive_ready(self) -> list[DownMessage | ProtocolError]:
        """Returns the messages that have arrived, without waiting."""
        messages: list[DownMessage | ProtocolError] = []
        for frames in _pending(self._link):
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

    def failure(self) -> str | None:
        """Returns, once, why the verify node refuses our connection, as far as the link tells; reconnect later."""
        return self._link.failure()

    def broke(self) -> bool:
        """Returns whether the connection ended since the last call; the next one has to begin with a Hello."""
        return self._link.broke()

    async def reconnect(self) -> None:
        """Drops the connection with its queue and makes another, which has to begin with a Hello."""
        self._link.rebuild()

    def close(self) -> None:
        """Ends the channel; what was sent still leaves, within the link's bound."""
        self._link.close()


class VerifyChannel:
    """The verify node's channel to all draft nodes."""

    def __init__(self, link: VerifyEnd, *, max_message_bytes: int, authenticated: bool = False) -> None:
        """authenticated: the link puts the sender's key into the frame after its name."""
        self.traffic = Traffic()
        self.emptied = False  # by the last `arriving`: it took something, heard or not, and left nothing
        self.has_more = False  # the last `arriving` took something, and may have left more
        self.max_message_bytes = max_message_bytes
        self._link = link
        self._authenticated = authenticated

    @property
    def endpoint(self) -> str:
        """The address that draft nodes connect to, with the actual port."""
        return self._link.endpoint

    def send(self, peer: bytes, message: DownMessage) -> Delivery:
        """Queues a message for a peer without waiting, and returns whether the link took it. Raises MessageTooLarge."""
        data = encode(message, self.max_message_bytes)
        delivery = self._link.put([peer, data])
        if delivery is Delivery.SENT:
            self.traffic.num_sent += 1
            self.traffic.bytes_sent += len(data)
        elif delivery is Delivery.BUSY:
            self.traffic.num_busy += 1
        else:
            self.traffic.num_gone += 1
        return delivery

    async def readable(self) -> None:
        """Returns when frames have arrived; all of them may come from barred peers."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        await self._link.readable()

    async def receive(self) -> Received:
        """Returns the next message of any draft node, or the error that its bytes were."""
        while True:
            await asyncio.sleep(0)  # as above
            while (frames := self._link.take()) is None:
                await self._link.readable()
            if self._is_heard(frames):
                return self._open(frames)

    def receive_ready(self) -> list[Received]:
        """Returns messages that have arrived, without waiting, up to READY_BYTES; call it again until `emptied`."""
        return list(self.arriving())

    def arriving(self) -> Iterator[Received]:
        """Yields what `receive_ready` returns, each decoded when it is asked for: the link keeps what is not.

        A link of several peers takes from each of them in turn.
        """
        self.emptied = self.has_more = False
        num_taken = num_bytes = 0
        for frames in _pending(self._link):
            self.has_more = True
            num_taken, num_bytes = num_taken + 1, num_bytes + _size(frames)
            if self._is_heard(frames):
                yield self._open(frames)
        self.emptied = 0 < num_taken < READY_MESSAGES and num_bytes < READY_BYTES
        self.has_more = num_taken > 0 and not self.emptied

    def bar(self, names: Container[bytes]) -> None:
        """Decodes nothing more of these peers or keys, and cuts their connections; `names` is read anew every time."""
        self._link.bar(names)

    @property
    def num_cut(self) -> int:
        """Connections ended from this side."""
        return self._link.num_cut

    def _is_heard(self, frames: list[bytes]) -> bool:
        is_unheard = len(frames) == 1
        self.traffic.num_received += is_unheard
        self.traffic.num_unheard += is_unheard
        return len(frames) > 1

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
        """Ends the channel; what was sent still leaves, within the link's bound."""
        self._link.close()


def _pending(link: Link) -> Iterator[list[bytes]]:
    num_bytes = num_messages = 0
    while num_bytes < READY_BYTES and num_messages < READY_MESSAGES and (frames := link.take()) is not None:
        num_bytes += _size(frames)
        num_messages += 1
        yield frames


def _single(payload: list[bytes]) -> bytes:
    if len(payload) != 1:
        raise MalformedMessage(f"{len(payload)} frames where one belongs")
    return payload[0]


def _size(frames: list[bytes]) -> int:
    return sum(len(frame) for frame in frames)
