"""An HTTP connection with limits, around uvicorn's connection, which speaks HTTP.

A request must arrive in time, and only a few may be sent ahead. The kernel ends a connection whose client reads
nothing. Uvicorn alone would wait forever for a request; its own limit closes no connection.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

import h11
from starlette.types import Message, Scope

from goodspeed.serving.web.connection_limit import ConnectionLimit, host_of

logger = logging.getLogger("goodspeed.http")

REQUEST_TIMEOUT_S = 75.0
"""Time for a complete request to arrive, from the start of the connection or the end of the previous answer. Longer
than a proxy like nginx keeps an idle connection: none sends a request into one that is being closed."""

WRITE_TIMEOUT_S = 30.0
"""Time after which Linux ends a connection whose client reads nothing, even one that was closed here."""

STALLED_S = 2.0
"""Time after which a client that does not read what is buffered for it counts as idle, and may be closed to make
room."""

MAX_AHEAD, MAX_AHEAD_UNAUTHORIZED = 8, 1
"""Most requests in a row that are sent before the answer to the one before; the last one's answer ends the
connection."""

CONNECTION = "goodspeed.connection"
"""Entry of a request's state with its `Connection`."""

CLOSE = (b"connection", b"close")


class Connection(asyncio.Protocol):
    """One connection: passes everything on to uvicorn's, and learns from `Watch` of its requests."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None
    _is_whole = False  # the latest request arrived in full, and is being answered
    _is_authorized = False
    _behind_since: float | None = None  # the client does not read what is buffered for it
    _num_ahead = 0
    _has_received = False  # since the latest request

    def __init__(
        self,
        http: Callable[..., asyncio.Protocol],
        limit: "ConnectionLimit[Connection]",
        *,
        app_state: dict[str, Any],
        **options: Any,
    ) -> None:
        """http: uvicorn's class, to which the options belong. limit: shared by all connections of a server."""
        self._http = http(app_state={**app_state, CONNECTION: self}, **options)
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()

    # -- what the event loop reports -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_TIMEOUT_S * 1000))
        self._http.connection_made(transport)
        client = transport.get_extra_info("peername")
        victim = self._limit.admit(self, host_of(client[0] if client else ""), self._loop.time())
        if victim is not None:
            victim.make_room()
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._has_received = True
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # uvicorn answers 400 to a broken body, also where an answer has begun
            logger.info("closed a connection: the request's body broke while it was being answered")
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._behind_since = self._loop.time()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._behind_since = None
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._limit.remove(self)
        self._http.connection_lost(exc)

    # -- the limit on connections ----------------------------------------------------------------------------------

    def idle_since(self, now: float) -> float | None:
        """Returns the time since which this connection may be closed to make room; None while it is busy."""
        if not (self._is_whole and self._is_authorized):
            return self._idle_since
        is_stalled = self._behind_since is not None and now - self._behind_since >= STALLED_S
        return self._behind_since if is_stalled else None

    def make_room(self) -> None:
        logger.info("closed a connection to make room: the limit is reached", extra={"limit": self._limit.max_open})
        self._transport.abort()

    # -- what `Watch` and the application report -------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def begin(self) -> None:
        """Notes that a request's head arrived."""
        self._num_ahead = 0 if self._has_received else self._num_ahead + 1
        self._has_received = self._is_whole = self._is_authorized = False

    def arrived(self) -> None:
        """Notes that the request arrived in full."""
        self._is_whole = True

    def authorize(self) -> None:
        """Keeps this connection from being closed to make room, until the answer ends."""
        self._is_authorized = True

    def head(self, message: Message) -> Message:
        """Returns the head of an answer, which ends the connection if too many requests were sent ahead."""
        if self._num_ahead < (MAX_AHEAD if self._is_authorized else MAX_AHEAD_UNAUTHORIZED):
            return message
        return {**message, "headers": [*message.get("headers", []), CLOSE]}

    def end(self) -> None:
        """Notes that the answer ended, or that there will be none."""
        if self._is_whole and self._is_authorized:
            self._idle_since = self._loop.time()
        self._is_whole = self._is_authorized = False
        self._start_timer()

    # -- the time limit of a request -------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_closing:
            self._timer = self._loop.call_later(REQUEST_TIMEOUT_S, self._end_overdue)

    def _end_overdue(self) -> None:
        if not self._is_whole:
            self._transport.close()


def authorize(scope: Scope) -> None:
    """Reports that a request is authorised; does nothing under a foreign server."""
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.authorize()
