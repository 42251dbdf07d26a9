"""A network inside one process, with the channels of a real one, for tests and simulations.

Every message passes through the codec as bytes. A `Fate` decides what happens to each packet, so a test can cause loss,
repetition, delay and reordering, and repeat them exactly.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Literal, NamedTuple, TypeAlias

from goodspeed.errors import TransportError
from goodspeed.wire.channels import Delivery, DraftChannel, VerifyChannel, peer_name
from goodspeed.wire.codec import MAX_MESSAGE_BYTES


class Packet(NamedTuple):
    """One message in flight; `peer` is the draft node that sent it (up) or receives it (down)."""

    direction: Literal["up", "down"]
    peer: bytes
    data: bytes


Fate: TypeAlias = Callable[[Packet], Iterable[Packet]]
"""Called with each packet that is sent; the packets that it returns are delivered at once, in that order. It loses a
packet by returning none, repeats it by returning it twice, and delays it by calling `MemoryNetwork.deliver` later."""


def intact(packet: Packet) -> Iterable[Packet]:
    """Delivers every packet once, as a faultless network does."""
    return (packet,)


class Faults:
    """A fate that loses, repeats and delays packets with the given probabilities, reproducibly for a seed.

    A delayed packet is delivered after 1 to `max_behind` later ones, so it arrives out of order; it is never delivered
    if no packet follows.
    """

    def __init__(
        self, seed: int, *, lose: float = 0.0, repeat: float = 0.0, delay: float = 0.0, max_behind: int = 4
    ) -> None:
        self._random = random.Random(seed)
        self._lose, self._repeat, self._delay, self._max_behind = lose, repeat, delay, max_behind
        self._held: list[tuple[int, Packet]] = []
        self.num_lost = self.num_repeated = self.num_delayed = 0

    def __call__(self, packet: Packet) -> Iterable[Packet]:
        due = self._due()
        if self._random.random() < self._lose:
            self.num_lost += 1
            return due
        if self._random.random() < self._delay:
            self.num_delayed += 1
            self._held.append((self._random.randint(1, self._max_behind), packet))
            return due
        if self._random.random() < self._repeat:
            self.num_repeated += 1
            return [packet, packet, *due]
        return [packet, *due]

    def _due(self) -> list[Packet]:
        self._held = [(behind - 1, packet) for behind, packet in self._held]
        due = [packet for behind, packet in self._held if behind <= 0]
        self._held = [(behind, packet) for behind, packet in self._held if behind > 0]
        return due


class MemoryNetwork:
    """One verify node and any number of draft nodes, joined by queues of bounded length."""

    def __init__(
        self, fate: Fate = intact, *, max_message_bytes: int = MAX_MESSAGE_BYTES, max_queued: int = 1024
    ) -> None:
        self.fate = fate
        self._max_message_bytes = max_message_bytes
        self._max_queued = max_queued
        self._verify: _MemoryLink | None = None
        self._drafts: dict[bytes, _MemoryLink] = {}
        self._senders: list[asyncio.Future[None]] = []

    def bind_verify(self) -> VerifyChannel:
        """Returns the verify node's channel; binding again simulates a restart, with empty queues."""
        self._verify = _MemoryLink(self, None)
        self.wake_senders()
        return VerifyChannel(self._verify, max_message_bytes=self._max_message_bytes)

    def connect_draft(self, identity: bytes, *, send_timeout_s: float = 3.0) -> DraftChannel:
        """Returns a draft node's channel, which replaces an earlier one of the same identity."""
        peer = peer_name(identity)
        self._drafts[peer] = link = _MemoryLink(self, peer)
        return DraftChannel(link, max_message_bytes=self._max_message_bytes, send_timeout_s=send_timeout_s)

    def send(self, packet: Packet) -> Delivery:
        """Gives a packet to its fate; returns BUSY or GONE when its receiver cannot take it."""
        link = self._receiver(packet)
        if link is None:
            # A draft node cannot see that nobody listens; a verify node is told.
            return Delivery.SENT if packet.direction == "up" else Delivery.GONE
        if len(link.queue) >= self._max_queued:
            return Delivery.BUSY
        for survivor in self.fate(packet):
            self.deliver(survivor)
        return Delivery.SENT

    def deliver(self, packet: Packet) -> None:
        """Puts a packet into its receiver's queue without asking its fate; drops it when there is no receiver."""
        if link := self._receiver(packet):
            link.push([packet.peer, packet.data] if packet.direction == "up" else [packet.data])

    async def room(self) -> None:
        """Returns when a packet was taken from a queue, or a channel was opened or closed."""
        self._senders.append(sender := asyncio.get_running_loop().create_future())
        await sender

    def wake_senders(self) -> None:
        """Wakes the senders that wait for room."""
        _wake(self._senders)

    def _receiver(self, packet: Packet) -> "_MemoryLink | None":
        return self._verify if packet.direction == "up" else self._drafts.get(packet.peer)

    def remove(self, link: "_MemoryLink") -> None:
        """Forgets a closed link, unless another has replaced it."""
        if self._verify is link:
            self._verify = None
        self._drafts = {peer: other for peer, other in self._drafts.items() if other is not link}
        self.wake_senders()


class _MemoryLink:
    """One end of the network; `peer` is the draft node's name, or None at the verify node."""

    def __init__(self, network: MemoryNetwork, peer: bytes | None) -> None:
        self.endpoint = "memory"
        self.queue: deque[list[bytes]] = deque()
        self._network = network
        self._peer = peer
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._barred: Container[bytes] = ()
        self._cut: set[bytes] = set()

    def put(self, frames: list[bytes]) -> Delivery:
        self._check_open()
        if self._peer is None:
            return self._network.send(Packet("down", frames[0], frames[1]))
        return self._network.send(Packet("up", self._peer, frames[0]))

    def push(self, frames: list[bytes]) -> None:
        self.queue.append(frames)
        _wake(self._waiters)

    def take(self) -> list[bytes] | None:
        self._check_open()
        if not self.queue:
            return None
        self._network.wake_senders()
        frames = self.queue.popleft()
        if frames[0] in self._barred:
            self._cut.add(frames[0])
            return frames[:1]
        return frames

    def bar(self, names: Container[bytes]) -> None:
        """Drops messages of these peers; for the verify node's end."""
        self._barred = names

    @property
    def num_cut(self) -> int:
        """Number of peers that were barred: in a real network each would have lost its connection."""
        return len(self._cut)

    async def readable(self) -> None:
        self._check_open()
        if not self.queue:
            self._waiters.append(waiter := asyncio.get_running_loop().create_future())
            await waiter
            self._check_open()

    async def writable(self) -> None:
        self._check_open()
        await self._network.room()
        self._check_open()

    def failure(self) -> str | None:
        return None

    def broke(self) -> bool:
        return False

    def rebuild(self) -> None:
        self._check_open()
        self.queue.clear()
        self._network.wake_senders()

    def close(self) -> None:
        self._closed = True
        self.queue.clear()
        self._network.remove(self)
        _wake(self._waiters)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("the channel is closed")


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
