"""HTTP connections as the nodes serve them: whoever is slow, silent or greedy is disconnected, or makes room.

A request has to come in time, its answer has to be taken, and few requests may be sent ahead of their answers. Who
makes room for whom is for `places.py` to say. Uvicorn itself waits without end for a request and for its answer to be
taken, and its limit answers but closes nothing. Knows nothing about what is asked and answered.
"""

import asyncio
import json
import logging
import socket
from typing import Any, cast

import h11
from h11._connection import DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from goodspeed.node.web.framing import StrictConnection
from goodspeed.node.web.guards import LET_IN, error_body
from goodspeed.node.web.places import Places, host_of
from goodspeed.node.web.unsent import Line

logger = logging.getLogger("goodspeed.http")

REQUEST_S = 60.0
"""Within so long after the connection was made, or the last answer was complete, a request has to be there in full."""

TAKE_S = 30.0
"""Something of an answer has to be taken in each so many seconds."""

HOLD_S = 2.0
"""If nothing of an answer is taken for this long, its connection may be closed to make room."""

MAX_AHEAD = 8
"""The most pipelined requests in a row; none may follow an unauthorised request."""


class PatientProtocol(H11Protocol):
    """One connection. `look` has to be called about once a second."""

    _giving_up: asyncio.TimerHandle | None = None
    _cycle: RequestResponseCycle | None = None  # the last one that was seen to begin
    _is_let_in = False
    _num_ahead = 0

    def __init__(self, *args: Any, places: "Places[PatientProtocol]", **options: Any) -> None:
        """`places` of all that share a server; the rest is uvicorn's."""
        super().__init__(*args, **options)
        self.conn = self._framing = StrictConnection(h11.SERVER, DEFAULT_MAX_INCOMPLETE_EVENT_SIZE)
        self._places = places
        self._taken_at = self.loop.time()
        self._num_taken = 0  # bytes, at that time

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._line = Line(transport)
        super().connection_made(cast(asyncio.Transport, self._line))
        victim = self._places.enter(self, host_of(self.client[0] if self.client else ""), self.loop.time())
        if victim is not None:
            victim.make_room()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._places.leave(self)
        super().connection_lost(exc)

    def make_room(self) -> None:
        logger.info(
            "closed a connection to make room: all places are taken", extra={"num_places": self._places.num_places}
        )
        self.transport.abort()

    def look(self, now: float) -> None:
        """Whether something of what was written has been taken since the last time; ends the connection after TAKE_S
        without."""
        num_pending = self._line.num_pending()
        num_taken = self._line.num_written - num_pending
        if not num_pending or num_taken > self._num_taken:
            self._num_taken, self._taken_at = num_taken, now
        elif now - self._taken_at >= TAKE_S:
            logger.info("closed a connection: nothing of its answer is taken", extra={"num_bytes": num_pending})
            self.transport.abort()
        self._mark()

    # -- its requests ----------------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self.cycle is not self._cycle:
            self._cycle = self.cycle
            self._begin()
        self._mark()

    def on_response_complete(self) -> None:
        is_more_there = self.conn.their_state is h11.DONE and self._framing.is_more_there
        self._num_ahead = self._num_ahead + 1 if is_more_there else 0
        if self._num_ahead > (MAX_AHEAD if self._is_let_in else 0):
            self.transport.close()
        super().on_response_complete()
        self._mark()
        self._wait()

    def send_400_response(self, msg: str) -> None:
        """In the shape of all errors, where nothing else was answered yet; the connection ends in any case."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            what = f"this is not a valid HTTP request: {self._framing.why or msg}"
            body = json.dumps(error_body(what, type="invalid_request_error", code="invalid_http")).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            head = h11.Response(status_code=400, headers=list(headers.items()))
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # what the application says to the broken request is dropped
        self.transport.close()

    def _begin(self) -> None:
        """A request's head is there, and nothing has been done about it yet."""
        self._is_let_in = False
        self.scope["extensions"] = {LET_IN: {"tell": self._let_in}}

    def _let_in(self) -> None:
        self._is_let_in = True
        self._mark()

    def _mark(self) -> None:
        """Tells whether this connection may have to make room."""
        is_asked = self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)
        if self.loop.time() - self._taken_at >= HOLD_S and self._line.num_pending():
            self._places.idle(self, self._taken_at)
        elif is_asked and self._is_let_in:
            self._places.busy(self)
        else:
            self._places.idle(self, self.loop.time())

    # -- patience with a request -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._giving_up = self.loop.call_later(REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self) -> None:
        being_answered = self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)
        if not being_answered:
            self.transport.close()


def prepare(connection: socket.socket) -> None:
    """What the system does for us where it can (Linux): it ends a connection whose other side takes nothing for TAKE_S,
    also after we have closed it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKE_S * 1000))
