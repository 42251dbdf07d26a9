"""Watches and cuts single TCP connections that ZeroMQ accepted, by their descriptors.

ZeroMQ cannot close a single connection of a socket. ZeroMQ delivers whole messages only, so a message that never ends
is buffered until memory is full. A `Guard` therefore compares the bytes that the kernel received on each connection
with the messages delivered from it. This needs Linux (/proc, TCP_INFO); elsewhere no connection is watched or cut.

ZeroMQ may close a descriptor at any moment, and the system may reuse its number. So the peer's address is compared,
too. In the rare case that both coincide, the wrong peer is cut and has to reconnect.
"""

import asyncio
import errno
import logging
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from termios import FIONREAD
from typing import Final, NamedTuple, TypeAlias

from goodspeed.wire.descriptors import OWN, num_free

logger = logging.getLogger("goodspeed.wire")

Address: TypeAlias = tuple[str, int]

LOOK_S: Final = 0.1
"""Time between two checks of all connections; longer if checks would take more than a twentieth of the time."""

CONFIRM_S: Final = 0.05
NUM_LOOKS: Final = 3
"""Checks, CONFIRM_S apart, at which a connection must exceed the bound before it is cut. So up to 0.2 s of its input
beyond the bound is buffered."""

ROOM: Final = 8
"""Descriptors to keep free by cutting connections that never sent a message. Without a free one, ZeroMQ retries accept
without a pause, which takes a whole core."""

SAY_S: Final = 60.0
"""Time between two log lines about scarce descriptors."""

LAST_WORD_S: Final = 0.2
"""Delay before `Guard.hang_up` cuts a connection, so that a final message can still be sent."""

NO_LINGER: Final = struct.pack("ii", 1, 0)

RECEIVED_BYTES: Final = struct.Struct("=128xQ")
UNREAD_BYTES: Final = struct.Struct("i")
"""Formats of tcpi_bytes_received at its offset in struct tcp_info (since Linux 4.1), and of FIONREAD's result."""


class Connection(NamedTuple):
    """A snapshot of an accepted connection."""

    descriptor: int
    peer: Address
    read_bytes: int  # bytes that ZeroMQ has read from the kernel


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yields a descriptor as a socket object without taking ownership; OSError if it is not a socket (any more)."""
    own = socket.socket(fileno=descriptor)
    try:
        yield own
    finally:
        own.detach()


def peer_of(descriptor: int) -> Address | None:
    """Returns the address of a connection's peer; None if the descriptor is not a connection (any more)."""
    try:
        with _borrowed(descriptor) as own:
            host, port, *_ = own.getpeername()
            return host, port
    except (OSError, ValueError):  # closed, not a socket, or a socket without addresses
        return None


def cut(descriptor: int, peer: Address) -> bool:
    """Shuts the connection down if the descriptor still belongs to this peer; ZeroMQ then closes it. True if done."""
    if peer_of(descriptor) != peer:
        return False
    try:
        with _borrowed(descriptor) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)  # else unread bytes may leave it half open
            own.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # the connection ended meanwhile
    return True


def accepted(port: int) -> list[Connection]:
    """Returns the connections that this process accepted at a port."""
    try:
        descriptors: Iterable[int] = [int(entry.name) for entry in OWN.iterdir()]
    except OSError as error:
        if error.errno != errno.EMFILE:
            return []
        descriptors = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # all in use: cannot list the folder
    return [found for descriptor in descriptors if (found := _look_at(descriptor, port)) is not None]


def _look_at(descriptor: int, port: int) -> Connection | None:
    try:
        with _borrowed(descriptor) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6) or own.getsockname()[1] != port:
                return None
            host, peer_port, *_ = own.getpeername()  # an OSError for the listening socket
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RECEIVED_BYTES.size)
            unread = UNREAD_BYTES.unpack(ioctl(descriptor, FIONREAD, bytes(UNREAD_BYTES.size)))[0]
            return Connection(descriptor, (host, peer_port), RECEIVED_BYTES.unpack(info)[0] - unread)
    except (OSError, ValueError, struct.error):  # closed, not a socket, or an older kernel
        return None


@dataclass(slots=True)
class _Seen:
    since: float
    delivered_bytes: int = 0  # bytes read at the latest check that saw a delivery
    num_beyond: int = 0  # successive checks beyond the bound


class Guard:
    """Cuts harmful connections of one listening socket.

    Cuts connections of barred peers and connections with a message that never ends. While descriptors are scarce, also
    cuts connections that never sent a message.
    """

    def __init__(self, port: int, is_idle: Callable[[], bool], *, message_bytes: int, unread_bytes: int) -> None:
        """is_idle: True if no whole message waits for `take`, now or at some moment since the previous call.

        message_bytes: the largest message. unread_bytes: most bytes of whole messages that may wait.
        """
        self.num_cut = 0
        self._is_idle = is_idle
        self._delivered: set[int] = set()  # descriptors with a message since the previous check
        self._port = port
        self._message_bytes = message_bytes
        self._unread_bytes = unread_bytes
        self._seen: dict[tuple[int, Address], _Seen] = {}
        self._hanging_up: dict[int, asyncio.TimerHandle] = {}  # by descriptor
        self._next_look: asyncio.TimerHandle | None = None
        self._said_at = -SAY_S

    def open(self) -> None:
        """Starts periodic checks in the running event loop. A second call does nothing."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def close(self) -> None:
        for timer in (self._next_look, *self._hanging_up.values()):
            if timer is not None:
                timer.cancel()
        self._hanging_up.clear()

    def delivered(self, descriptor: int) -> None:
        """Records that a whole message arrived on this connection."""
        self._delivered.add(descriptor)

    def hang_up(self, descriptor: int, host: str) -> None:
        """Cuts a connection after LAST_WORD_S, so that a final message can still be sent.

        host: the peer's; does nothing if the descriptor belongs to another host by now.
        """
        if descriptor in self._hanging_up:
            return
        peer = peer_of(descriptor)
        if peer is not None and peer[0] == host:
            loop = asyncio.get_running_loop()
            self._hanging_up[descriptor] = loop.call_later(LAST_WORD_S, self._hang_up_now, descriptor, peer)

    def look(self) -> bool:
        """Cuts connections beyond the bound at NUM_LOOKS checks in a row; returns True if any is beyond it now."""
        before, self._seen = self._seen, {}
        bound = self._message_bytes if self._is_idle() else self._unread_bytes
        now = time.monotonic()
        for descriptor, peer, read_bytes in accepted(self._port):
            seen = before.get((descriptor, peer)) or _Seen(now)
            if descriptor in self._delivered:
                seen = _Seen(seen.since, read_bytes)
            num_bytes = read_bytes - seen.delivered_bytes
            seen.num_beyond = seen.num_beyond + 1 if num_bytes > self._message_bytes else 0
            if seen.num_beyond >= NUM_LOOKS and num_bytes > bound:
                self.num_cut += cut(descriptor, peer)
            self._seen[descriptor, peer] = seen
        self._delivered.clear()
        self._make_room(now)
        return any(seen.num_beyond for seen in self._seen.values())

    def _make_room(self, now: float) -> None:
        """Cuts connections that never sent a message, the oldest first, until ROOM descriptors are free."""
        free = num_free()
        if free is None or free >= ROOM:
            return
        silent = sorted((seen.since, *line) for line, seen in self._seen.items() if not seen.delivered_bytes)
        if now - self._said_at >= SAY_S:
            self._said_at = now
            what = "this process has few descriptors left: cutting connections that sent no message; allow it more"
            logger.warning(f"{what} (ulimit -n)", extra={"num_free": free, "num_silent": len(silent)})
        for _, descriptor, peer in silent[: ROOM - free]:
            self.num_cut += cut(descriptor, peer)

    def _look_again(self) -> None:
        started = time.perf_counter()
        pause_s = CONFIRM_S if self.look() else LOOK_S
        pause_s = max(pause_s, 20 * (time.perf_counter() - started))
        self._next_look = asyncio.get_running_loop().call_later(pause_s, self._look_again)

    def _hang_up_now(self, descriptor: int, peer: Address) -> None:
        del self._hanging_up[descriptor]
        self.num_cut += cut(descriptor, peer)
