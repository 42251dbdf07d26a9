"""Uvicorn in a daemon's own event loop, which it neither owns nor ends. Knows nothing about what is served."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.node.web.accepting import Acceptor
from goodspeed.node.web.capacity import MAX_CONNECTIONS, num_places
from goodspeed.node.web.guards import error_body
from goodspeed.node.web.places import Places
from goodspeed.node.web.protocol import PatientProtocol, prepare

logger = logging.getLogger("goodspeed.http")

GRACE_S = 2
"""How long answers may go on after the server was told to stop; whoever wants to wait longer does so before."""

LOOK_S = 1.0
"""How often connections are looked at for answers that nobody takes."""


FAILED_HERE = (
    "the node failed on this request; ask again, and if it persists tell its operator (the node's log says why)"
)


class _Guard:
    """The edge: what an application did not catch is logged, and is a 500 where nothing was answered yet."""

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
                await JSONResponse(body, 500)(scope, receive, send)


class _Server(uvicorn.Server):
    """Signals belong to the daemon around it, and connections are accepted our way."""

    def __init__(self, config: uvicorn.Config, places: "Places[PatientProtocol]") -> None:
        super().__init__(config)
        self._places = places

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = [Acceptor(listener, self._create_protocol, prepare) for listener in sockets or []]  # type: ignore[misc]
        self.started = True

    def _create_protocol(self) -> PatientProtocol:
        return PatientProtocol(config=self.config, server_state=self.server_state, app_state={}, places=self._places)

    async def look(self) -> None:
        """At all connections, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for connection in list(self.server_state.connections):
                if isinstance(connection, PatientProtocol):
                    connection.look(loop.time())


async def serve(app: ASGIApp, listener: socket.socket, *, max_connections: int = MAX_CONNECTIONS) -> None:
    """Serves until cancelled, in this event loop; then accepts nobody, and running answers have GRACE_S to end.

    ConfigError where this process may not have enough sockets.
    """
    config = uvicorn.Config(
        _Guard(app),
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what matters of it, _Guard says
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, Places(num_places(max_connections)))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    looking = asyncio.create_task(server.look())
    try:
        await asyncio.shield(serving)
    finally:
        looking.cancel()
        server.should_exit = True
        await serving
