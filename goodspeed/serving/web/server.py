"""Runs Uvicorn inside a daemon's event loop, without taking over the loop or its signals."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.serving.web.accepting import Acceptor
from goodspeed.serving.web.connection_limit import MAX_CONNECTIONS, ConnectionLimit, possible_connections
from goodspeed.serving.web.errors import FAILED_HERE, error_answer, error_body
from goodspeed.serving.web.protocol import REQUEST_TIMEOUT_S, TimeoutProtocol, prepare

logger = logging.getLogger("goodspeed.http")

GRACE_S = 2
"""Time for running answers after the server is stopped; callers that allow more time wait before stopping it."""

CHECK_INTERVAL_S = 1.0
"""Time between two checks of all connections for clients that do not read their answer."""


class _Guard:
    """Logs an application's uncaught exceptions, and answers 500 if no answer has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            logger.info("an answer was cut off", extra={"path": scope["path"]})
        except Exception:
            logger.exception("a request failed", extra={"path": scope["path"]})
            if not started:
                body = error_body(FAILED_HERE, type="server_error", code="internal")
                await error_answer(scope, 500, body)(scope, receive, send)


class _Server(uvicorn.Server):
    """A Uvicorn server that leaves signals to the daemon and accepts connections with `Acceptor`."""

    def __init__(self, config: uvicorn.Config, limit: "ConnectionLimit[TimeoutProtocol]") -> None:
        super().__init__(config)
        self._limit = limit

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = [Acceptor(listener, self._create_protocol, prepare) for listener in sockets or []]  # type: ignore[misc]
        self.started = True

    def _create_protocol(self) -> TimeoutProtocol:
        return TimeoutProtocol(config=self.config, server_state=self.server_state, app_state={}, limit=self._limit)

    async def check_connections(self) -> None:
        """Checks all connections every CHECK_INTERVAL_S, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for connection in list(self.server_state.connections):
                if isinstance(connection, TimeoutProtocol):
                    connection.check_progress(loop.time())


async def serve(app: ASGIApp, listener: socket.socket, *, max_connections: int = MAX_CONNECTIONS) -> None:
    """Serves in this event loop until cancelled; then stops accepting, and gives running answers GRACE_S to end.

    Raises ConfigError if this process may not open enough sockets.
    """
    config = uvicorn.Config(
        _Guard(app),
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # _Guard logs what matters
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(REQUEST_TIMEOUT_S),
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, ConnectionLimit(possible_connections(max_connections)))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    checking = asyncio.create_task(server.check_connections())
    try:
        await asyncio.shield(serving)
    finally:
        checking.cancel()
        server.should_exit = True
        await serving
