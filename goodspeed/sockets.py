"""ZeroMQ sockets as links of `channels.py`: a draft node's DEALER and the verify node's ROUTER.

Nothing here waits inside ZeroMQ: sockets are tried without blocking, and asyncio watches their descriptor. Made by
`transport.py`. Knows nothing about messages, or who is barred and why.
"""

import asyncio
import ctypes
import secrets
from collections.abc import Container
from typing import ClassVar, Final

import zmq

from goodspeed.authentication import ClientKeys, Gate, ServerKeys, Witness, proven_key
from goodspeed.channels import Delivery, Link
from goodspeed.connections import Guard
from goodspeed.endpoints import Endpoint
from goodspeed.errors import TransportError

MAX_FRAMES: Final = 4096
"""Frames taken at once; a message of ours has one, beside its sender's name."""


class _SocketLink(Link):
    """A ZeroMQ socket whose descriptor asyncio watches while somebody waits.

    The descriptor is edge-triggered, and any operation on the socket may swallow the edge. So whoever waits asks
    for the state first, and whoever uses the socket meanwhile looks for others who wait.
    """

    _kind: ClassVar[int]

    def __init__(self, address: Endpoint, options: dict[int, int | bytes]) -> None:
        self.endpoint = address.endpoint
        self._address = address
        self._options = options
        self._context = zmq.Context()
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._closed = False
        try:
            self._open()
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _open(self) -> None:
        self._socket: zmq.Socket[bytes] = self._context.socket(self._kind)
        for option, value in self._options.items():
            self._socket.setsockopt(option, value)
        self._socket.setsockopt(zmq.IPV6, self._address.ipv6)
        self._attach()
        self._descriptor = int(self._socket.getsockopt(zmq.FD))

    def _attach(self) -> None:
        """Binds or connects the socket, and whatever watches it."""
        raise NotImplementedError

    def _receive(self) -> list[bytes]:
        """The next message's frames; zmq.Again where there is none."""
        return self._socket.recv_multipart(zmq.NOBLOCK)

    def put(self, frames: list[bytes]) -> Delivery:
        self._check_open()
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return Delivery.BUSY
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise TransportError(f"cannot send at {self.endpoint}: {error.strerror}") from None
            return Delivery.GONE
        finally:
            self._wake()
        return Delivery.SENT

    def take(self) -> list[bytes] | None:
        self._check_open()
        try:
            return self._receive()
        except zmq.Again:
            return None
        finally:
            self._wake()

    async def readable(self) -> None:
        await self._wait(zmq.POLLIN)

    async def writable(self) -> None:
        await self._wait(zmq.POLLOUT)

    async def _wait(self, events: int) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if not self._waiters:
            loop.add_reader(self._descriptor, self._wake)
        self._waiters[waiter] = events
        try:
            self._wake()
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            if not self._waiters and not self._closed:
                loop.remove_reader(self._descriptor)

    def _wake(self) -> None:
        if self._waiters:
            state = int(self._socket.getsockopt(zmq.EVENTS))
            for waiter, events in self._waiters.items():
                if state & events and not waiter.done():
                    waiter.set_result(None)

    @property
    def num_cut(self) -> int:
        return 0

    def bar(self, names: Container[bytes]) -> None:
        raise NotImplementedError("only the verify node's link tells peers apart")

    def failure(self) -> str | None:
        self._check_open()
        return None

    def broke(self) -> bool:
        self._check_open()
        return False

    def rebuild(self) -> None:
        self._check_open()
        self._release(None)
        self._close_socket(linger=0)
        self._open()

    def _close_socket(self, linger: int | None = None) -> None:
        self._socket.close(linger=linger)

    def close(self) -> None:
        """Blocks until all is sent, at most the linger time (nothing waits after a healthy exchange)."""
        if not self._closed:
            self._closed = True
            self._release(TransportError(f"the channel at {self.endpoint} is closed"))
            self._close_socket()
            self._context.term()

    def _release(self, error: TransportError | None) -> None:
        """Lets everybody go who waits on this socket, to look again or with an error."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.get_loop().remove_reader(self._descriptor)
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(f"the channel at {self.endpoint} is closed")


class DealerLink(_SocketLink):
    """A draft node's socket."""

    _kind = zmq.DEALER

    def __init__(self, address: Endpoint, options: dict[int, int | bytes], keys: ClientKeys | None = None) -> None:
        self._keys = keys
        super().__init__(address, options)

    def _attach(self) -> None:
        self._witness = Witness(self._socket, self._keys)
        self._socket.connect(self.endpoint)
        self._hung_up = False

    def failure(self) -> str | None:
        self._check_open()
        why = self._witness.failure()
        if why is not None and not self._hung_up:
            self._hung_up = True
            self._socket.disconnect(self.endpoint)  # else ZeroMQ tries at once, ten times a second, or never again
        return why

    def broke(self) -> bool:
        self._check_open()
        return self._witness.broke()

    def _close_socket(self, linger: int | None = None) -> None:
        self._witness.close()
        super()._close_socket(linger)


class RouterLink(_SocketLink):
    """The verify node's socket, which ends connections of those who are barred, or never come to an end."""

    _kind = zmq.ROUTER

    def __init__(
        self,
        address: Endpoint,
        options: dict[int, int | bytes],
        keys: ServerKeys | None = None,
        *,
        message_bytes: int,
        unread_bytes: int,
    ) -> None:
        """message_bytes: what one message takes at most; unread_bytes: whole ones of one peer that wait, about."""
        self._keys = keys
        self._gate: Gate | None = None
        self._barred: Container[bytes] = ()
        self._was_emptied = False
        self._is_amid = False  # of a message of too many frames, the rest of which is thrown away
        _seed_names()
        super().__init__(address, options)
        port = int(self.endpoint.rpartition(":")[2])
        self._guard = Guard(port, self._is_idle, message_bytes=message_bytes, unread_bytes=unread_bytes)

    def _attach(self) -> None:
        if self._keys is not None:
            self._gate = Gate(self._context, self._keys.admits)
        self._bind()

    def _bind(self) -> None:
        try:
            self._socket.bind(self.endpoint)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                what_to_do = "another program listens there; stop it, or choose another port (0 takes any free one)"
            else:
                what_to_do = "choose an address of this machine"
            raise TransportError(f"cannot bind {self.endpoint}: {error.strerror}; {what_to_do}") from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def bar(self, names: Container[bytes]) -> None:
        """Messages of these peers or keys are not taken any more, and their connections are cut; read every time."""
        self._barred = names

    @property
    def num_cut(self) -> int:
        return self._guard.num_cut

    def take(self) -> list[bytes] | None:
        frames = super().take()
        self._was_emptied |= frames is None
        return frames

    def _is_idle(self) -> bool:
        """Whether every whole message was taken, at some moment since the last time that this was asked."""
        was_emptied, self._was_emptied = self._was_emptied, False
        state = int(self._socket.getsockopt(zmq.EVENTS))
        self._wake()
        return was_emptied or not state & zmq.POLLIN

    def _receive(self) -> list[bytes]:
        """Nothing of the message is copied where the sender is barred."""
        frames, is_rest = self._next_frames(), self._is_amid
        self._is_amid = frames[-1].more
        if is_rest:
            return []
        descriptor = _descriptor_of(frames[-1])
        self._guard.delivered(descriptor)
        if self._gate is None:
            names = [frames[0].bytes]
        else:
            names = [frames[0].bytes, proven_key(frames[-1])]
        if any(name in self._barred for name in names):
            self._guard.hang_up(descriptor, _host_of(frames[-1]))
            return names[:1]
        return names + [frame.bytes for frame in frames[1:]]

    def _next_frames(self) -> list[zmq.Frame]:
        """Of a message of very many only the first: the rest comes with the next calls."""
        frames = [self._socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more and len(frames) < MAX_FRAMES:
            frames.append(self._socket.recv(zmq.NOBLOCK, copy=False))
        return frames

    async def _wait(self, events: int) -> None:
        self._check_open()
        if self._gate is not None:
            self._gate.open()
        self._guard.open()
        await super()._wait(events)

    def _close_socket(self, linger: int | None = None) -> None:
        super()._close_socket(linger)
        self._guard.close()
        if self._gate is not None:
            self._gate.close()


def _host_of(frame: zmq.Frame) -> str:
    """That the connection it came by was with; empty where ZeroMQ does not tell."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""


def _seed_names() -> None:
    """Of the next ROUTER: whoever knows what name a nameless connection is given next can end the process.

    libzmq counts them up from a number of the C library's rand(), which it never seeds, and aborts (`ok`,
    socket_base.cpp) where another connection said that it had that name.
    """
    ctypes.CDLL(None).srand(secrets.randbits(32))


def _descriptor_of(frame: zmq.Frame) -> int:
    """Of the connection that it came by; -1 for one of a ZMTP before 3, which does not tell."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1
