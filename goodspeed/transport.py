"""ZeroMQ: the draft side's DEALER socket and the verify side's ROUTER socket, behind the channels of `channels.py`.

The only file that imports zmq, beside `authentication.py`. Nothing here waits inside ZeroMQ: sockets are tried without
blocking, and asyncio watches their descriptor. Knows nothing about sessions, or what a message means. Every name that
users of channels need can be imported from here.
"""

import asyncio
from typing import Final

import zmq

from goodspeed.authentication import (
    ClientKeys,
    Gate,
    ServerKeys,
    Witness,
    authenticated,
    client_options,
    server_options,
)
from goodspeed.channels import Delivery, DraftChannel, Link, Received, Traffic, VerifyChannel, peer_name
from goodspeed.codec import MAX_MESSAGE_BYTES
from goodspeed.endpoints import Endpoint, parse_endpoint
from goodspeed.errors import ConfigError, TransportError
from goodspeed.memory_network import Faults, MemoryNetwork, Packet

__all__ = [
    "ClientKeys",
    "Delivery",
    "DraftChannel",
    "Faults",
    "MemoryNetwork",
    "Packet",
    "Received",
    "ServerKeys",
    "Traffic",
    "VerifyChannel",
    "bind_verify",
    "connect_draft",
    "peer_name",
]

FRAME_MARGIN_BYTES: Final = 64 << 10
"""ZeroMQ cuts the connection over a frame beyond its limit: one slightly too large is still refused by name."""

UNREAD_BYTES: Final = 64 << 20
"""About what one peer may have waiting, unread, in the verify node."""

OPTIONS: Final[dict[int, int | bytes]] = {
    zmq.HEARTBEAT_IVL: 500,
    zmq.HEARTBEAT_TIMEOUT: 1500,
    zmq.HEARTBEAT_TTL: 1500,
    zmq.HANDSHAKE_IVL: 10_000,
    zmq.CONNECT_TIMEOUT: 5_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 2_000,
    zmq.LINGER: 500,  # last verdicts and Close leave, and nothing hangs
    # IMMEDIATE stays off: what is sent before the connection stands waits for it.
}


class _SocketLink(Link):
    """A ZeroMQ socket whose descriptor asyncio watches while somebody waits.

    The descriptor is edge-triggered, and any operation on the socket may swallow the edge. So whoever waits asks
    for the state first, and whoever uses the socket meanwhile looks for others who wait.
    """

    def __init__(
        self,
        kind: int,
        address: Endpoint,
        options: dict[int, int | bytes],
        keys: ServerKeys | ClientKeys | None = None,
    ) -> None:
        self.endpoint = address.endpoint
        self._kind = kind
        self._address = address
        self._options = options
        self._keys = keys
        self._gate: Gate | None = None
        self._witness: Witness | None = None
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
        if self._kind == zmq.ROUTER:
            if isinstance(self._keys, ServerKeys):
                self._gate = Gate(self._context, self._keys.admits)
            self._bind()
        else:
            self._witness = Witness(self._socket, self._keys if isinstance(self._keys, ClientKeys) else None)
            self._socket.connect(self.endpoint)
            self._hung_up = False
        self._descriptor = int(self._socket.getsockopt(zmq.FD))

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
            if self._gate is not None:
                return authenticated(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))
            return self._socket.recv_multipart(zmq.NOBLOCK)
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
        if self._gate is not None:
            self._gate.open()
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

    def failure(self) -> str | None:
        self._check_open()
        why = self._witness.failure() if self._witness is not None else None
        if why is not None and not self._hung_up:
            self._hung_up = True
            self._socket.disconnect(self.endpoint)  # else ZeroMQ tries at once, ten times a second, or never again
        return why

    def rebuild(self) -> None:
        self._check_open()
        self._release(None)
        self._close_socket(linger=0)
        self._open()

    def _close_socket(self, linger: int | None = None) -> None:
        if self._witness is not None:
            self._witness.close()
        self._socket.close(linger=linger)

    def close(self) -> None:
        """Blocks until all is sent, at most the linger time (nothing waits after a healthy exchange)."""
        if not self._closed:
            self._closed = True
            self._release(TransportError(f"the channel at {self.endpoint} is closed"))
            self._close_socket()
            if self._gate is not None:
                self._gate.close()
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


def bind_verify(
    endpoint: str,
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    send_queue: int = 1024,
    keys: ServerKeys | None = None,
) -> VerifyChannel:
    """Listens for draft nodes; ConfigError for an endpoint that is not allowed, TransportError for a busy port.

    With `keys` all is encrypted, only keys that are admitted connect, and `Received.principal` is whose word it is.
    `send_queue` messages may wait for one peer (besides what its connection buffers), then sending is BUSY.
    """
    address = parse_endpoint(endpoint, trusted_network or keys is not None, "binding")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        zmq.ROUTER_MANDATORY: 1,  # else what cannot be delivered vanishes
        # Without keys a draft node that connects again takes its own name over. With keys the name is of one
        # connection: what is sent to it must never reach another key's.
        zmq.ROUTER_HANDOVER: int(keys is None),
        zmq.SNDHWM: send_queue,
        # No limit: libzmq 4.3.5 aborts the process (`!_io_error`) when a connection whose queue is full is reset, at
        # its next heartbeat or PING. Anybody can do that. What peers send is bounded by what they are barred for.
        zmq.RCVHWM: 0,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
        zmq.BACKLOG: 1024,
        **(server_options(keys.pair) if keys is not None else {}),
    }
    link = _SocketLink(zmq.ROUTER, address, options, keys)
    return VerifyChannel(link, max_message_bytes=max_message_bytes, authenticated=keys is not None)


def connect_draft(
    endpoint: str,
    *,
    identity: bytes,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    trusted_network: bool = False,
    send_queue: int = 256,
    send_timeout_s: float = 3.0,
    keys: ClientKeys | None = None,
) -> DraftChannel:
    """Connects to a verify node, now or as soon as it is there; ConfigError for an endpoint that is not allowed.

    `identity` (1 to 64 bytes) is the boot id of this process; a connection of the same identity replaces the last.
    With `keys` each connection is named anew by the verify node, which knows the key.
    """
    address = parse_endpoint(endpoint, trusted_network or keys is not None, "connecting")
    if address.port == 0:
        raise ConfigError(f"{endpoint}: a port to connect to is 1 to 65535")
    options: dict[int, int | bytes] = {
        **OPTIONS,
        **({zmq.ROUTING_ID: peer_name(identity)} if keys is None else client_options(keys)),
        zmq.SNDHWM: send_queue,
        zmq.RCVHWM: 1024,
        zmq.MAXMSGSIZE: max_message_bytes + FRAME_MARGIN_BYTES,
    }
    link = _SocketLink(zmq.DEALER, address, options, keys)
    return DraftChannel(link, max_message_bytes=max_message_bytes, send_timeout_s=send_timeout_s)
