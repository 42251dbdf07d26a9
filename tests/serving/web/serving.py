"""Applications that are served for a test, at an address of their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from goodspeed.serving.web.server import serve
from tests.listening import listen


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


@asynccontextmanager
async def serving(app: ASGIApp, **options: int) -> AsyncIterator[tuple[str, int]]:
    """Yields the address; the server has stopped afterwards, and has closed its listener."""
    listener = listen()
    server = asyncio.create_task(serve(app, listener, **options))
    try:
        yield listener.getsockname()
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
