"""HTTP connections with time limits: slow, silent or greedy clients are disconnected.

A request must arrive in time, the client must read the answer, and only a few requests may be pipelined.
`connection_limit.py` chooses the connection to close for a newcomer. Uvicorn alone would wait forever for a request and
for a client that does not read; its own limit closes no connection.
"""

import asyncio
import fcntl
import json
import logging
import socket
import struct
import sys
from typing import Any, cast

import h11
from h11._connection import DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from goodspeed.serving.web.connection_limit import ConnectionLimit, host_of
from goodspeed.serving.web.errors import error_body
from goodspeed.serving.web.guards import AUTHORIZED

logger = logging.getLogger("goodspeed.http")

REQUEST_TIMEOUT_S = 75.0
"""Time for a complete request to arrive, from the start of the connection or the end of the previous answer. Longer
than a proxy like nginx keeps an idle connection: none sends a request into one that is being closed."""

WRITE_TIMEOUT_S = 30.0
"""Time after which a client that reads nothing of an answer is disconnected."""

STALLED_S = 2.0
"""Time after which a client that reads nothing of an answer counts as idle, and may be closed to make room."""

MAX_PIPELINED = 8
"""Most pipelined requests in a row; none may follow an unauthorised request."""


IS_LINUX = sys.platform == "linux"

SIOCOUTQ = 0x5411
"""ioctl: unacknowledged bytes in a Linux socket's send queue, sent or not."""

LENGTH, ENCODING = b"content-length", b"transfer-encoding"


class TimeoutProtocol(H11Protocol):
    """One connection; the server must call `check_progress` about once a second."""

    _request_timer: asyncio.TimerHandle | None = None
    _cycle: RequestResponseCycle | None = None  # the latest request prepared by `_begin`
    _is_authorized = False
    _num_pipelined = 0

    def __init__(self, *args: Any, limit: "ConnectionLimit[TimeoutProtocol]", **options: Any) -> None:
        """limit: shared by all connections of a server; the other arguments are uvicorn's."""
        super().__init__(*args, **options)
        self.conn = self._framing = StrictConnection(h11.SERVER, DEFAULT_MAX_INCOMPLETE_EVENT_SIZE)
        self._limit = limit
        self._taken_at = self.loop.time()
        self._num_taken = 0  # bytes that the client had read at that time

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._counting = CountingTransport(transport)
        super().connection_made(cast(asyncio.Transport, self._counting))
        victim = self._limit.admit(self, host_of(self.client[0] if self.client else ""), self.loop.time())
        if victim is not None:
            victim.make_room()
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_request_timer()
        self._limit.remove(self)
        super().connection_lost(exc)

    def make_room(self) -> None:
        logger.info("closed a connection to make room: the limit is reached", extra={"limit": self._limit.max_open})
        self.transport.abort()

    def check_progress(self, now: float) -> None:
        """Ends the connection if the client read nothing for WRITE_TIMEOUT_S although bytes are pending."""
        num_pending = self._counting.num_pending()
        num_taken = self._counting.num_written - num_pending
        if not num_pending or num_taken > self._num_taken:
            self._num_taken, self._taken_at = num_taken, now
        elif now - self._taken_at >= WRITE_TIMEOUT_S:
            logger.info("closed a connection: its client does not read the answer", extra={"num_bytes": num_pending})
            self.transport.abort()
        self._mark_busy_or_idle()

    # -- its requests ----------------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self.cycle is not self._cycle:
            self._cycle = self.cycle
            self._begin()
        self._mark_busy_or_idle()

    def on_response_complete(self) -> None:
        is_more_there = self.conn.their_state is h11.DONE and self._framing.is_more_there
        self._num_pipelined = self._num_pipelined + 1 if is_more_there else 0
        if self._num_pipelined > (MAX_PIPELINED if self._is_authorized else 0):
            self.transport.close()
        super().on_response_complete()
        self._mark_busy_or_idle()
        self._start_request_timer()

    def send_400_response(self, msg: str) -> None:
        """Sends an error body unless an answer has begun, and closes the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            what = f"this is not a valid HTTP request: {self._framing.why or msg}"
            body = json.dumps(error_body(what, type="invalid_request_error", code="invalid_http")).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            head = h11.Response(status_code=400, headers=list(headers.items()))
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application's answer to the broken request is dropped
        self.transport.close()

    def _begin(self) -> None:
        """Prepares a request after its head arrived, before the application runs."""
        self._is_authorized = False
        self.scope["extensions"] = {AUTHORIZED: {"tell": self._authorized}}

    def _authorized(self) -> None:
        self._is_authorized = True
        self._mark_busy_or_idle()

    def _mark_busy_or_idle(self) -> None:
        """Reports to the connection limit whether this connection may be closed to make room."""
        is_asked = self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)
        if self.loop.time() - self._taken_at >= STALLED_S and self._counting.num_pending():
            self._limit.mark_idle(self, self._taken_at)
        elif is_asked and self._is_authorized:
            self._limit.mark_busy(self)
        else:
            self._limit.mark_idle(self, self.loop.time())

    # -- the time limit of a request -------------------------------------------------------------------------------

    def _start_request_timer(self) -> None:
        self._cancel_request_timer()
        if not self.transport.is_closing():
            self._request_timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._end_overdue)

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _end_overdue(self) -> None:
        being_answered = self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)
        if not being_answered:
            self.transport.close()


def prepare(connection: socket.socket) -> None:
    """Makes Linux end a connection whose client reads nothing for WRITE_TIMEOUT_S, even after we closed it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_TIMEOUT_S * 1000))


class StrictConnection(h11.Connection):
    """HTTP/1.1 framing, stricter than h11's: refuses a request with two conflicting lengths (request smuggling).

    If a proxy used one length and the server the other, the server would take one user's bytes for another user's
    request.
    """

    why: str | None = None
    """Text of the latest error."""

    @property
    def is_more_there(self) -> bool:
        """True if bytes were received that no event has consumed yet."""
        return len(self._receive_buffer) > 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Returns h11's next event. Raises RemoteProtocolError, after which the connection must be closed."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_lengths(event)
            return event
        except h11.RemoteProtocolError as error:
            self.why = str(error)
            raise


def _check_lengths(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if ENCODING in names and LENGTH in names:
        raise h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding; send one of them", 400)
    if ENCODING in names and request.http_version < b"1.1":
        raise h11.RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding; send Content-Length", 400)


class CountingTransport:
    """An asyncio transport that counts the bytes not yet acknowledged by the peer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.num_written = 0
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.num_written += len(data)
        self._transport.write(data)

    def num_pending(self) -> int:
        """Returns the bytes buffered in this process and, on Linux, unacknowledged in the kernel."""
        return self._transport.get_write_buffer_size() + self._num_unacknowledged()

    def _num_unacknowledged(self) -> int:
        connection = self._transport.get_extra_info("socket")
        if not IS_LINUX or connection is None or connection.fileno() < 0:
            return 0
        try:
            return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), SIOCOUTQ, bytes(4)))[0])
        except OSError:
            return 0  # the connection ended meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
