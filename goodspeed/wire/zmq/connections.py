"""TCP connections that a library accepted for us: looked at, and cut, by their descriptors.

ZeroMQ ends no single connection of a socket, and keeps the parts of a message that never ends until memory does: nobody
sees a message before it is whole. So a `Guard` compares what the kernel has received of each connection with whether
anything of it was delivered. That needs Linux (/proc, TCP_INFO); elsewhere it sees no connections, and cuts none.

A descriptor may be closed by its owner at any moment, and be another connection's. So the other end's address is
compared as well; were it wrong in spite of that, somebody would have to connect again. Knows nothing about ZeroMQ or
messages.
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
"""Between two looks at all connections, or more where that would take more than a twentieth of the time."""

CONFIRM_S: Final = 0.05
NUM_LOOKS: Final = 3
"""Whoever is beyond the bound is looked at again so soon, and is cut the third time. What comes until then, 0.2 s after
the bound was passed, has to be kept: as much as the line brings."""

ROOM: Final = 8
"""Keep at least this many descriptors free, by closing connections that never sent a message. With none left, ZeroMQ
tries to accept the next connection again and again without a pause, which takes a whole core."""

SAY_S: Final = 60.0
"""How often the log tells that descriptors are scarce."""

LAST_WORD_S: Final = 0.2
"""From the decision to hang up until that is done."""

NO_LINGER: Final = struct.pack("ii", 1, 0)

RECEIVED_BYTES: Final = struct.Struct("=128xQ")
UNREAD_BYTES: Final = struct.Struct("i")
"""tcpi_bytes_received, where struct tcp_info has it since Linux 4.1; and what FIONREAD tells."""


class Connection(NamedTuple):
    """One that was accepted, at one moment."""

    descriptor: int
    peer: Address
    read_bytes: int  # that its owner has taken from the kernel


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """As a socket object, which does not close it; an OSError where it is no socket (any more)."""
    own = socket.socket(fileno=descriptor)
    try:
        yield own
    finally:
        own.detach()


def peer_of(descriptor: int) -> Address | None:
    """The other end of a connection; None where there is none (any more)."""
    try:
        with _borrowed(descriptor) as own:
            host, port, *_ = own.getpeername()
            return host, port
    except (OSError, ValueError):  # closed, no socket, or one without addresses
        return None


def cut(descriptor: int, peer: Address) -> bool:
    """Ends the connection with this peer, if the descriptor still is that; its owner notices, and closes it."""
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
    """This process's connections to a port of its own."""
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
    """Ends connections of one listening socket: of whoever is barred, of whoever never comes to an end, and of who has
    never said anything where the process has no descriptors left for others."""

    def __init__(self, port: int, is_idle: Callable[[], bool], *, message_bytes: int, unread_bytes: int) -> None:
        """is_idle: whether no whole message waits to be taken, now or at some moment since it was asked last.

        message_bytes: what a message takes at most; unread_bytes: what whole ones that wait may take.
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
        """Looks now and then from now on, in the running event loop. A second time changes nothing."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def close(self) -> None:
        for timer in (self._next_look, *self._hanging_up.values()):
            if timer is not None:
                timer.cancel()
        self._hanging_up.clear()

    def delivered(self, descriptor: int) -> None:
        """A whole message came by this connection."""
        self._delivered.add(descriptor)

    def hang_up(self, descriptor: int, host: str) -> None:
        """Ends this connection with a host in a moment: a last word is still on its way.

        What it sent may be read after it ended, when the descriptor is a connection with somebody else.
        """
        if descriptor in self._hanging_up:
            return
        peer = peer_of(descriptor)
        if peer is not None and peer[0] == host:
            loop = asyncio.get_running_loop()
            self._hanging_up[descriptor] = loop.call_later(LAST_WORD_S, self._hang_up_now, descriptor, peer)

    def look(self) -> bool:
        """Whoever is beyond the bound so often, with nothing delivered meanwhile, is cut; tells if anybody might be."""
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
        """Those that are cut are the ones that have said nothing for longest."""
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
