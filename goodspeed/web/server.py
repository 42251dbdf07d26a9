"""Uvicorn in a daemon's own event loop, which it neither owns nor ends. Knows nothing about what is served."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.web.guards import error_body
from goodspeed.web.patience import PatientProtocol

logger = logging.getLogger("goodspeed.http")

GRACE_S = 2
"""How long answers may go on after the server was told to stop; whoever wants to wait longer does so before."""

MAX_CONNECTIONS = 512
"""Well below the 1,024 descriptors that a process usually may have."""


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
                body = error_body("this request failed here; the log says why", type="server_error", code="internal")
                await JSONResponse(body, 500)(scope, receive, send)


class _Server(uvicorn.Server):
    """Signals belong to the daemon around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, listener: socket.socket, *, max_connections: int = MAX_CONNECTIONS) -> None:
    """Until cancelled, in this event loop; then accepts nobody, and running answers have GRACE_S to end."""
    config = uvicorn.Config(
        _Guard(app),
        http=partial(PatientProtocol, max_connections=max_connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what matters of it, _Guard says
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving
