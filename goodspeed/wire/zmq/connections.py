"""Watches and cuts single TCP connections that ZeroMQ accepted, by their descriptors.

ZeroMQ cannot close a single connection of a socket, and buffers a message that never ends until memory is full, since
it delivers whole messages only. So a `Guard` compares the bytes that the kernel has received on each connection with
the messages delivered from it. That needs Linux (/proc, TCP_INFO); elsewhere no connection is seen or cut.

ZeroMQ may close a descriptor at any moment, and the system may reuse its number. So the peer's address is compared as
well; if that fails too, a peer has to connect again.
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
"""Time between two checks of all connections; longer where checking would take more than a twentieth of the time."""

CONFIRM_S: Final = 0.05
NUM_LOOKS: Final = 3
"""A connection beyond the bound is checked again after CONFIRM_S, and cut at the third check. What arrives until then,
0.2 s after the bound was passed, has to be buffered."""

ROOM: Final = 8
"""Keep at least this many descriptors free, by closing connections that never sent a message. With none left, ZeroMQ
tries to accept the next connection again and again without a pause, which takes a whole core."""

SAY_S: Final = 60.0
"""Time between two log lines about scarce descriptors."""

LAST_WORD_S: Final = 0.2
"""Delay from the decision to hang up until the connection is cut, so that a last message can leave."""

NO_LINGER: Final = struct.pack("ii", 1, 0)

RECEIVED_BYTES: Final = struct.Struct("=128xQ")
UNREAD_BYTES: Final = struct.Struct("i")
"""Formats of tcpi_bytes_received, where struct tcp_info has it since Linux 4.1, and of FIONREAD's result."""


class Connection(NamedTuple):
    """An accepted connection, as it was at one moment."""

    descriptor: int
    peer: Address
    read_bytes: int  # that its owner has taken from the kernel


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yields a descriptor as a socket object that does not close it; OSError where it is no socket (any more)."""
    own = socket.socket(fileno=descriptor)
    try:
        yield own
    finally:
        own.detach()


def peer_of(descriptor: int) -> Address | None:
    """Returns the address of a connection's peer; None where there is no connection (any more)."""
    try:
        with _borrowed(descriptor) as own:
            host, port, *_ = own.getpeername()
            return host, port
    except (OSError, ValueError):  # closed, no socket, or one without addresses
        return None


def cut(descriptor: int, peer: Address) -> bool:
    """Shuts down the connection if the descriptor still belongs to this peer; its owner notices and closes it."""
    if peer_of(descriptor) != peer:
        return False
    try:
        with _borrowed(descriptor) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)  # else what is unread may hold it half open
            own.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # it ended meanwhile
    return True


def accepted(port: int) -> list[Connection]:
    """Returns this process's connections to a port that it listens at."""
    try:
        descriptors: Iterable[int] = [int(entry.name) for entry in OWN.iterdir()]
    except OSError as error:
        if error.errno != errno.EMFILE:
            return []
        descriptors = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # each is in use, none is left to look with
    return [found for descriptor in descriptors if (found := _look_at(descriptor, port)) is not None]


def _look_at(descriptor: int, port: int) -> Connection | None:
    try:
        with _borrowed(descriptor) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6) or own.getsockname()[1] != port:
                return None
            host, peer_port, *_ = own.getpeername()  # an OSError for the socket that listens
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RECEIVED_BYTES.size)
            unread = UNREAD_BYTES.unpack(ioctl(descriptor, FIONREAD, bytes(UNREAD_BYTES.size)))[0]
            return Connection(descriptor, (host, peer_port), RECEIVED_BYTES.unpack(info)[0] - unread)
    except (OSError, ValueError, struct.error):  # closed, no socket, or a kernel that does not tell
        return None


@dataclass(slots=True)
class _Seen:
    since: float
    delivered_bytes: int = 0  # all that had been read when something of it was last seen to be delivered
    num_beyond: int = 0  # looks in a row


class Guard:
    """Cuts connections of one listening socket: of barred peers, with a message that never ends, and, where the process
    is out of descriptors, those that never sent a message."""

    def __init__(self, port: int, is_idle: Callable[[], bool], *, message_bytes: int, unread_bytes: int) -> None:
        """is_idle: whether no whole message waits for `take`, now or at some moment since the last call.

        message_bytes: the largest message; unread_bytes: the most bytes of whole messages that may wait.
        """
        self.num_cut = 0
        self._is_idle = is_idle
        self._delivered: set[int] = set()  # descriptors of which a message was delivered since the last look
        self._port = port
        self._message_bytes = message_bytes
        self._unread_bytes = unread_bytes
        self._seen: dict[tuple[int, Address], _Seen] = {}
        self._hanging_up: dict[int, asyncio.TimerHandle] = {}  # by descriptor
        self._next_look: asyncio.TimerHandle | None = None
        self._said_at = -SAY_S

    def open(self) -> None:
        """Starts checking periodically in the running event loop. A second call changes nothing."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def close(self) -> None:
        for timer in (self._next_look, *self._hanging_up.values()):
            if timer is not None:
                timer.cancel()
        self._hanging_up.clear()

    def delivered(self, descriptor: int) -> None:
        """Notes that a whole message arrived on this connection."""
        self._delivered.add(descriptor)

    def hang_up(self, descriptor: int, host: str) -> None:
        """Cuts this connection with a host after LAST_WORD_S, when a last message has left.

        host: compared at that time, since the descriptor may belong to another connection by then.
        """
        if descriptor in self._hanging_up:
            return
        peer = peer_of(descriptor)
        if peer is not None and peer[0] == host:
            loop = asyncio.get_running_loop()
            self._hanging_up[descriptor] = loop.call_later(LAST_WORD_S, self._hang_up_now, descriptor, peer)

    def look(self) -> bool:
        """Cuts connections beyond the bound at NUM_LOOKS checks with nothing delivered; tells if any may be next."""
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
            self._say(free, len(silent))
        for _, descriptor, peer in silent[: ROOM - free]:
            self.num_cut += cut(descriptor, peer)

    def _say(self, free: int, num_silent: int) -> None:
        logger.warning(
            "this process has hardly any descriptors left, so connections that say nothing are cut; allow it more "
            "(ulimit -n)",
            extra={"num_free": free, "num_silent": num_silent},
        )

    def _look_again(self) -> None:
        started = time.perf_counter()
        pause_s = CONFIRM_S if self.look() else LOOK_S
        pause_s = max(pause_s, 20 * (time.perf_counter() - started))
        self._next_look = asyncio.get_running_loop().call_later(pause_s, self._look_again)

    def _hang_up_now(self, descriptor: int, peer: Address) -> None:
        del self._hanging_up[descriptor]
        self.num_cut += cut(descriptor, peer)
