"""The verify node's ZeroMQ socket as a transport of `channels.py`: a ROUTER that cuts harmful connections.

`opening_channels.py` creates it.
"""

import ctypes
import secrets
from collections.abc import Container
from typing import Final

import zmq

from goodspeed.wire.endpoints import Endpoint, cannot_bind
from goodspeed.wire.zmq.authentication import ServerKeys, ZapHandler
from goodspeed.wire.zmq.connection_guard import Guard
from goodspeed.wire.zmq.sockets import SocketTransport

MAX_FRAMES: Final = 4096
"""Most frames taken at once; a valid message has one in addition to its sender's name."""


class RouterTransport(SocketTransport):
    """The verify node's socket. Cuts connections of barred peers, and those with a message that never ends."""

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
        """message_bytes: the largest message. unread_bytes: about the most unread bytes of a peer."""
        self._keys = keys
        self._zap: ZapHandler | None = None
        self._barred: Container[bytes] = ()
        self._was_emptied = False
        self._is_amid = False  # the remaining frames belong to an oversized message, and are dropped
        _seed_names()
        super().__init__(address, options)
        port = int(self.endpoint.rpartition(":")[2])
        self._guard = Guard(port, self._is_idle, message_bytes=message_bytes, unread_bytes=unread_bytes)

    def _attach(self) -> None:
        if self._keys is not None:
            self._zap = ZapHandler(self._context, self._keys.admits)
        try:
            self._socket.bind(self.endpoint)
        except zmq.ZMQError as error:
            number = int(error.errno or 0)  # error.strerror repeats the address
            raise cannot_bind(self.endpoint, number, zmq.strerror(number)) from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def bar(self, names: Container[bytes]) -> None:
        self._barred = names

    @property
    def num_cut(self) -> int:
        return self._guard.num_cut

    def take(self) -> list[bytes] | None:
        frames = super().take()
        self._was_emptied |= frames is None
        return frames

    def _is_idle(self) -> bool:
        """True if at some moment since the previous call no whole message waited."""
        was_emptied, self._was_emptied = self._was_emptied, False
        state = int(self._socket.getsockopt(zmq.EVENTS))
        self._wake()
        return was_emptied or not state & zmq.POLLIN

    def _receive(self) -> list[bytes]:
        """Returns the next message's frames; does not copy a barred sender's message."""
        frames, is_rest = self._next_frames(), self._is_amid
        self._is_amid = frames[-1].more
        if is_rest:
            return []
        descriptor = int(_told(frames[-1], zmq.SRCFD) or -1)
        self._guard.delivered(descriptor)
        names = [frames[0].bytes]
        if self._zap is not None:
            names.append((_told(frames[-1], "User-Id") or "").encode())  # the authenticated public key
        if any(name in self._barred for name in names):
            self._guard.hang_up(descriptor, _told(frames[-1], "Peer-Address") or "")
            return names[:1]
        return names + [frame.bytes for frame in frames[1:]]

    def _next_frames(self) -> list[zmq.Frame]:
        """Returns up to MAX_FRAMES frames of the next message; later calls return the rest."""
        frames = [self._socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more and len(frames) < MAX_FRAMES:
            frames.append(self._socket.recv(zmq.NOBLOCK, copy=False))
        return frames

    async def _wait(self, events: int) -> None:
        self._check_open()
        if self._zap is not None:
            self._zap.open()
        self._guard.open()
        await super()._wait(events)

    def _close_socket(self, linger: int | None = None) -> None:
        super()._close_socket(linger)
        self._guard.close()
        if self._zap is not None:
            self._zap.close()


def _told(frame: zmq.Frame, what: int | str) -> str | None:
    """Returns what ZeroMQ knows of a frame's connection; None if it does not (ZMTP before 3, or no CURVE)."""
    try:
        return str(frame.get(what))
    except zmq.ZMQError:
        return None


def _seed_names() -> None:
    """Makes the next ROUTER's connection names unpredictable: a peer that predicts one can abort the process.

    libzmq counts names up from the C library's rand(), which it never seeds. libzmq aborts (`ok`, socket_base.cpp) if
    another connection has already claimed the next name.
    """
    ctypes.CDLL(None).srand(secrets.randbits(32))
