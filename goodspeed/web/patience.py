"""HTTP connections on which no request comes are closed, so that nobody can hold all there may be by being slow.

And there may be so many: beyond that they are closed at once, or they would use up the descriptors that the wire needs.
Uvicorn's own patience with a first request, and with the rest of one that was begun, has no end, and its limit answers
but closes nothing. Knows nothing about what is asked and answered.
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger("goodspeed.http")

REQUEST_S = 60.0
"""Within so long after the connection was made, or the last answer was complete, a request has to be there in full."""


class PatientProtocol(H11Protocol):
    """Waits so long for a request, and for as long as may be for its answer."""

    _giving_up: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, max_connections: int, **options: Any) -> None:
        """`max_connections` of all that share a server; the rest is uvicorn's."""
        super().__init__(*args, **options)
        self._max_connections = max_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            logger.info("closed a connection: there are too many", extra={"max_connections": self._max_connections})
            transport.abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

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
