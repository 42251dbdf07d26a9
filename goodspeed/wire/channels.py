"""Channels: messages in, messages out, over any link that moves frames. The draft side and the verify side.

The codec, the framing rule and the counters are here, once, for sockets and for the in-memory network alike. Users
import these names from `transport.py`. Knows nothing about ZeroMQ, sessions, or what a message means.
"""

import asyncio
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from goodspeed.errors import ConfigError, MalformedMessage, ProtocolError, TransportError
from goodspeed.wire.codec import decode_down, decode_up, encode
from goodspeed.wire.messages import DownMessage, UpMessage

READY_BYTES = 4 << 20
"""`receive_ready` stops after so many bytes: what one turn of an event loop may decode without being late."""

READY_MESSAGES = 256


class Delivery(Enum):
    """What became of a message that was given to a link. SENT is on its way; the others were not taken."""

    SENT = "sent"
    BUSY = "busy"  # the peer does not keep up: its high-water mark is reached. Keep the message, try later
    GONE = "gone"  # no such peer is connected


class Link(Protocol):
    """Moves lists of frames and never blocks."""

    endpoint: str

    def put(self, frames: list[bytes]) -> Delivery: ...
    def take(self) -> list[bytes] | None:
        """The next message's frames, None where nothing waits.

        At the verify node they begin with the sender's name, and there is no more where nobody is to hear it; no frames
        at all are the rest of a message that is thrown away.
        """

    async def readable(self) -> None:
        """Returns when `take` may have something; TransportError when the link is closed."""

    async def writable(self) -> None:
        """Returns when `put` may work again; TransportError when the link is closed."""

    def close(self) -> None: ...


class DraftEnd(Link, Protocol):
    """A draft node's, with one connection."""

    def failure(self) -> str | None:
        """Why the newest connection attempt was not taken, once; whoever is told rebuilds the link, later."""

    def broke(self) -> bool:
        """Whether the connection ended since the last call; the link makes another, and loses what was under way."""

    def rebuild(self) -> None: ...


class VerifyEnd(Link, Protocol):
    """The verify node's, which tells peers apart."""

    def bar(self, names: Container[bytes]) -> None:
        """Messages of these peers or keys are not taken any more, and their connections are cut; read every time."""

    @property
    def num_cut(self) -> int:
        """Connections ended from this side."""


@dataclass
class Traffic:
    """What went through a channel since it was made."""

    num_sent: int = 0
    num_received: int = 0  # malformed ones and unheard ones too
    num_malformed: int = 0
    num_busy: int = 0  # given to send, not taken, and told so: the peer does not keep up
    num_gone: int = 0  # the same, since there is no such peer
    num_unheard: int = 0  # of peers that are barred: not decoded
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def num_undelivered(self) -> int:
        """Given to send, and told to the caller as not taken."""
        return self.num_busy + self.num_gone


@dataclass(frozen=True, slots=True)
class Received:
    """One message from a draft node, or why its bytes were none; `peer` is the name to answer to."""

    peer: bytes
    message: UpMessage | ProtocolError
    num_bytes: int
    principal: str | None = None  # the public key that the sender proved to have; None on a link without keys


class DraftChannel:
    """A draft node's line to the verify node."""

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
        """Queues a message; MessageTooLarge, or TransportError when the verify node has taken nothing for long."""
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
        """The next message; a ProtocolError for bytes that are none, after which the channel goes on."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        while (frames := self._link.take()) is None:
            await self._link.readable()
        return self._open(frames)

    def receive_ready(self) -> list[DownMessage | ProtocolError]:
        """Whatever else is there already, without waiting."""
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
        """Why the verify node takes no connection of ours, as far as the link tells; reconnect after a while."""
        return self._link.failure()

    def broke(self) -> bool:
        """Whether the connection ended since the last call; on the next one the verify node knows nobody yet."""
        return self._link.broke()

    async def reconnect(self) -> None:
        """Drops the connection with all that is queued in it, and makes another, which has to say Hello."""
        self._link.rebuild()

    def close(self) -> None:
        """Ends the channel; what was sent still leaves, within the link's bound."""
        self._link.close()


class VerifyChannel:
    """The verify node's lines to all draft nodes."""

    def __init__(self, link: VerifyEnd, *, max_message_bytes: int, authenticated: bool = False) -> None:
        """`authenticated`: the link puts the sender's key behind its name."""
        self.traffic = Traffic()
        self.emptied = False  # by the last `receive_ready`: it took something, heard or not, and left nothing
        self.max_message_bytes = max_message_bytes
        self._link = link
        self._authenticated = authenticated

    @property
    def endpoint(self) -> str:
        """Where draft nodes connect, with the actual port."""
        return self._link.endpoint

    def send(self, peer: bytes, message: DownMessage) -> Delivery:
        """Queues a message for a peer at once or not at all, and says which; raises MessageTooLarge."""
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
        """Returns when there is something; all of it may be of whoever is barred."""
        await asyncio.sleep(0)  # a flood of messages must not keep other tasks from running
        await self._link.readable()

    async def receive(self) -> Received:
        """The next message of any draft node, or the error that its bytes were."""
        while True:
            await asyncio.sleep(0)  # as above
            while (frames := self._link.take()) is None:
                await self._link.readable()
            if self._is_heard(frames):
                return self._open(frames)

    def receive_ready(self) -> list[Received]:
        """Whatever is there already, without waiting; bounded, so call it again next turn unless that `emptied` it."""
        taken = list(_pending(self._link))
        self.emptied = 0 < len(taken) < READY_MESSAGES and sum(map(_size, taken)) < READY_BYTES
        return [self._open(frames) for frames in taken if self._is_heard(frames)]

    def bar(self, names: Container[bytes]) -> None:
        """Nothing of these peers, or keys, is decoded any more, and their connections are cut; read every time."""
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


def peer_name(identity: bytes) -> bytes:
    """What the verify node knows a draft node of this identity by, on any link.

    Not the identity itself: ZeroMQ keeps names that begin with a zero byte for its own use.
    """
    if not 1 <= len(identity) <= 64:
        raise ConfigError(f"an identity has 1 to 64 bytes, not {len(identity)}")
    return b"d" + identity


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
