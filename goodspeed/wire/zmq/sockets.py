"""ZeroMQ sockets as transports of `channels.py`: the base class, and a draft node's DEALER.

No call blocks inside ZeroMQ: calls are non-blocking, and asyncio watches the sockets' descriptors.
`opening_channels.py` creates the sockets; the verify node's socket is in `router.py`.
"""

import asyncio
from abc import abstractmethod
from typing import ClassVar

import zmq

from goodspeed.errors import TransportError
from goodspeed.wire.channels import Delivery, Transport
from goodspeed.wire.descriptors import num_free
from goodspeed.wire.endpoints import Endpoint
from goodspeed.wire.zmq.authentication import ClientKeys, ConnectionMonitor

NEEDED = 16
"""Free descriptors without which no socket is opened. One takes eight; libzmq 4.3.5 aborts the process (epoll.cpp) if
its threads find too few."""


class SocketTransport(Transport):
    """A ZeroMQ socket whose descriptor asyncio watches from the first time that a task waits.

    The descriptor is readable until somebody asks for the socket's state, and any operation on the socket may ask. So a
    task checks the state before waiting, and every operation wakes the waiting tasks that can proceed.
    """

    _kind: ClassVar[int]

    def __init__(self, address: Endpoint, options: dict[int, int | bytes]) -> None:
        free = num_free()
        if free is not None and free < NEEDED:
            what = f"this process may open only {free} more files and sockets; allow it more (ulimit -n)"
            raise TransportError(f"{address.endpoint}: {what}")
        self.endpoint = address.endpoint
        self._address = address
        self._options = options
        self._context = zmq.Context()
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # that watches the descriptor
        self._closed = False
        try:
            self._open()
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _open(self) -> None:
        """Opens the socket; TransportError if that is impossible."""
        try:
            self._socket: zmq.Socket[bytes] = self._context.socket(self._kind)
            for option, value in self._options.items():
                self._socket.setsockopt(option, value)
            self._socket.setsockopt(zmq.IPV6, self._address.ipv6)
            self._attach()
            self._descriptor = int(self._socket.getsockopt(zmq.FD))
        except zmq.ZMQError as error:  # no OSError
            what = "ZeroMQ rejects this address or key; check both"
            if error.errno != zmq.EINVAL:
                what = f"ZeroMQ cannot open a socket: {zmq.strerror(int(error.errno or 0))}"
            raise TransportError(f"{self.endpoint}: {what}") from None

    @abstractmethod
    def _attach(self) -> None:
        """Binds or connects the socket, and starts its monitors."""

    def _receive(self) -> list[bytes]:
        """Returns the next message's frames; zmq.Again if none waits."""
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
        if self._loop is not loop:
            self._unwatch()
            loop.add_reader(self._descriptor, self._look)
            self._loop = loop
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = events
        try:
            self._look()
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def _wake(self) -> None:
        if self._waiters:
            self._look()

    def _look(self) -> None:
        """Asks for the socket's state, and wakes the tasks that can proceed."""
        state = int(self._socket.getsockopt(zmq.EVENTS))
        for waiter, events in self._waiters.items():
            if state & events and not waiter.done():
                waiter.set_result(None)

    def _unwatch(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._descriptor)

    def _close_socket(self, linger: int | None = None) -> None:
        self._socket.close(linger=linger)

    def close(self) -> None:
        """Closes the socket; blocks until the queue is sent, at most for the linger time."""
        if not self._closed:
            self._closed = True
            self._release(TransportError(f"the channel at {self.endpoint} is closed"))
            self._close_socket()
            self._context.term()

    def _release(self, error: TransportError | None) -> None:
        """Wakes every task that waits on this socket. error: raised in the tasks; None: they check again."""
        self._unwatch()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(f"the channel at {self.endpoint} is closed")


class DealerTransport(SocketTransport):
    """A draft node's socket."""

    _kind = zmq.DEALER

    def __init__(self, address: Endpoint, options: dict[int, int | bytes], keys: ClientKeys | None = None) -> None:
        self._keys = keys
        super().__init__(address, options)

    def _attach(self) -> None:
        self._monitor = ConnectionMonitor(self._socket, self._keys)
        self._socket.connect(self.endpoint)
        self._hung_up = False

    def failure(self) -> str | None:
        self._check_open()
        why = self._monitor.failure()
        if why is not None and not self._hung_up:
            self._hung_up = True
            self._socket.disconnect(self.endpoint)  # else ZeroMQ retries at once, ten times a second, or never
        return why

    def broke(self) -> bool:
        self._check_open()
        return self._monitor.broke()

    def rebuild(self) -> None:
        self._check_open()
        self._release(None)
        before = self._socket, self._monitor, self._descriptor, self._hung_up
        try:
            self._open()
        except TransportError:
            if self._socket is not before[0]:
                self._socket.close(linger=0)
            self._socket, self._monitor, self._descriptor, self._hung_up = before
            raise
        before[1].close()
        before[0].close(linger=0)

    def _close_socket(self, linger: int | None = None) -> None:
        self._monitor.close()
        super()._close_socket(linger)
