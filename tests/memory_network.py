"""A network inside one process, with the channels of a real one. Every message passes through the codec as bytes.

A `Fate` decides what happens to each packet, so a test can cause loss, repetition, delay and reordering exactly.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Literal, NamedTuple, TypeAlias

from goodspeed.errors import TransportError
from goodspeed.wire.channels import Delivery, DraftChannel, VerifyChannel
from goodspeed.wire.codec import MAX_MESSAGE_BYTES


class Packet(NamedTuple):
    """One message in flight; `peer` is the draft node that sent it (up) or receives it (down)."""

    direction: Literal["up", "down"]
    peer: bytes
    data: bytes


Fate: TypeAlias = Callable[[Packet], Iterable[Packet]]
"""Called with each packet that is sent; the packets that it returns are delivered at once, in that order."""


def peer_name(identity: bytes) -> bytes:
    """Returns the name under which the verify node knows a draft node of this identity."""
    return b"d" + identity


class MemoryNetwork:
    """One verify node and any number of draft nodes, joined by queues."""

    def __init__(self, fate: Fate = lambda packet: (packet,)) -> None:
        self.fate = fate
        self.has_room = asyncio.Event()  # cleared: every queue is full
        self.has_room.set()
        self._verify: _MemoryTransport | None = None
        self._drafts: dict[bytes, _MemoryTransport] = {}

    def bind_verify(self) -> VerifyChannel:
        """Returns the verify node's channel; binding again simulates a restart, with an empty queue."""
        self._verify = _MemoryTransport(self, None)
        return VerifyChannel(self._verify, max_message_bytes=MAX_MESSAGE_BYTES)

    def connect_draft(self, identity: bytes) -> DraftChannel:
        """Returns a draft node's channel, which replaces an earlier one of the same identity."""
        peer = peer_name(identity)
        self._drafts[peer] = transport = _MemoryTransport(self, peer)
        return DraftChannel(transport, max_message_bytes=MAX_MESSAGE_BYTES)

    def send(self, packet: Packet) -> Delivery:
        """Gives a packet to its fate. A draft node cannot see that nobody listens; a verify node is told."""
        if self._receiver(packet) is None:
            return Delivery.SENT if packet.direction == "up" else Delivery.GONE
        if not self.has_room.is_set():
            return Delivery.BUSY
        for survivor in self.fate(packet):
            self.deliver(survivor)
        return Delivery.SENT

    def deliver(self, packet: Packet) -> None:
        """Puts a packet into its receiver's queue without asking its fate; drops it when there is no receiver."""
        if transport := self._receiver(packet):
            transport.push([packet.peer, packet.data] if packet.direction == "up" else [packet.data])

    def _receiver(self, packet: Packet) -> "_MemoryTransport | None":
        return self._verify if packet.direction == "up" else self._drafts.get(packet.peer)

    def remove(self, transport: "_MemoryTransport") -> None:
        """Forgets a closed transport, unless another has replaced it."""
        if self._verify is transport:
            self._verify = None
        self._drafts = {peer: other for peer, other in self._drafts.items() if other is not transport}


class _MemoryTransport:
    """One end of the network; `peer` is the draft node's name, or None at the verify node."""

    def __init__(self, network: MemoryNetwork, peer: bytes | None) -> None:
        self.endpoint = "memory"
        self._queue: deque[list[bytes]] = deque()
        self._network = network
        self._peer = peer
        self._arrived = asyncio.Event()
        self._closed = False
        self._barred: Container[bytes] = ()
        self._cut: set[bytes] = set()

    def put(self, frames: list[bytes]) -> Delivery:
        self._check_open()
        if self._peer is None:
            return self._network.send(Packet("down", frames[0], frames[1]))
        return self._network.send(Packet("up", self._peer, frames[0]))

    def push(self, frames: list[bytes]) -> None:
        self._queue.append(frames)
        self._arrived.set()

    def take(self) -> list[bytes] | None:
        self._check_open()
        if not self._queue:
            self._arrived.clear()
            return None
        frames = self._queue.popleft()
        if frames[0] in self._barred:
            self._cut.add(frames[0])
            return frames[:1]
        return frames

    def bar(self, names: Container[bytes]) -> None:
        self._barred = names

    @property
    def num_cut(self) -> int:
        """Number of peers that were barred: in a real network each would have lost its connection."""
        return len(self._cut)

    async def readable(self) -> None:
        self._check_open()
        await self._arrived.wait()
        self._check_open()

    async def writable(self) -> None:
        self._check_open()
        await self._network.has_room.wait()

    def failure(self) -> str | None:
        return None

    def broke(self) -> bool:
        return False

    def rebuild(self) -> None:
        self._check_open()
        self._queue.clear()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()
        self._network.remove(self)
        self._arrived.set()

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("the channel is closed")
