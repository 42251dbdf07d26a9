"""Runs Uvicorn inside a daemon's event loop, without taking over the loop or its signals."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.serving.web.address import BACKLOG
from goodspeed.serving.web.connection import CONNECTION, REQUEST_TIMEOUT_S, Connection
from goodspeed.serving.web.connection_limit import MAX_CONNECTIONS, ConnectionLimit, possible_connections
from goodspeed.serving.web.errors import CUT_OFF, FAILED_HERE, error_answer

logger = logging.getLogger("goodspeed.http")

GRACE_S = 2
"""Time for running answers after the server is stopped; callers that allow more time wait before stopping it."""

MAX_ACCEPTED = 8
"""Most connections accepted in one turn of the event loop; more would block it."""

WARN_INTERVAL_S = 60.0
"""Shortest time between two warnings about exhausted descriptors or memory."""

SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Watch:
    """Tells each request's connection what becomes of the request; the outermost middleware.

    Refuses a request with two conflicting lengths. Logs an application's uncaught exceptions, and answers that the
    server's end cut off; answers 500 and 503 if no answer has begun.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"][CONNECTION]
        names = {name for name, _ in scope["headers"]}
        has_started = has_ended = False

        async def receive_watched() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                connection.arrived()
            return message

        async def send_watched(message: Message) -> None:
            nonlocal has_started, has_ended
            if connection.is_closing:
                return  # the client left, or was told that the rest of its request is no HTTP
            is_head, has_started = not has_started, True
            await send(connection.head(message) if is_head else message)
            if not is_head and not message.get("more_body", False):
                has_ended = True
                connection.end()

        async def answer_instead(status: int, message: str, code: str) -> None:
            if not has_started:
                headers = {"Retry-After": "5"} if status == 503 else None
                answer = error_answer(scope, status, message, code, headers=headers)
                await answer(scope, receive_watched, send_watched)

        connection.begin()
        if not names & {b"content-length", b"transfer-encoding"}:
            connection.arrived()
        try:
            await (_refusal(scope, names) or self._app)(scope, receive_watched, send_watched)
        except asyncio.CancelledError:
            logger.info("an answer was cut off", extra={"path": scope["path"]})
            await answer_instead(503, CUT_OFF, "draining")
        except Exception:
            logger.exception("a request failed", extra={"path": scope["path"]})
            await answer_instead(500, FAILED_HERE, "internal")
        finally:
            if not has_ended:
                connection.end()
        if connection.is_closing and not has_ended:  # else uvicorn would answer 500 after the 400 to a broken body
            while (await receive())["type"] != "http.disconnect":
                pass


def _refusal(scope: Scope, names: set[bytes]) -> ASGIApp | None:
    """Returns the answer to a request with two conflicting lengths (request smuggling).

    If a proxy used one length and the server the other, the server would take one user's bytes for another user's
    request.
    """
    if b"transfer-encoding" not in names:
        return None
    if b"content-length" in names:
        why = "it has both Content-Length and Transfer-Encoding; send one of them"
    elif scope["http_version"] < "1.1":
        why = "HTTP/1.0 has no Transfer-Encoding; send Content-Length"
    else:
        return None
    what = f"this is not a valid HTTP request: {why}"
    return error_answer(scope, 400, what, "invalid_http", headers={"connection": "close"})


class _Server(uvicorn.Server):
    """A Uvicorn server that leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(BACKLOG)  # asyncio accepts as many at once as it lets wait, MAX_ACCEPTED


class _LoopErrors:
    """Handles errors of the event loop: those of accepting without descriptors with one line in WARN_INTERVAL_S."""

    def __init__(self) -> None:
        self._said_at = -WARN_INTERVAL_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in SCARCE and "socket" in context):
            loop.default_exception_handler(context)
        elif loop.time() - self._said_at >= WARN_INTERVAL_S:
            self._said_at = loop.time()
            logger.warning(
                "cannot accept HTTP connections now; allow this process more descriptors (ulimit -n)",
                extra={"error": error.strerror},
            )


async def serve(app: ASGIApp, listener: socket.socket, *, max_connections: int = MAX_CONNECTIONS) -> None:
    """Serves in this event loop until cancelled; then stops accepting, and gives running answers GRACE_S to end.

    Raises ConfigError if this process may not open enough sockets.
    """
    config = uvicorn.Config(
        Watch(app),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # Watch logs what matters
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=MAX_ACCEPTED,
        timeout_keep_alive=int(REQUEST_TIMEOUT_S),
        timeout_graceful_shutdown=GRACE_S,
    )
    limit: ConnectionLimit[Connection] = ConnectionLimit(possible_connections(max_connections))
    config.load()
    config.http_protocol_class = partial(Connection, config.http_protocol_class, limit)  # type: ignore[assignment]
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_LoopErrors())
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving
