"""Sends answers, whole and as server-sent events, while the user is connected."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TypeVar

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from draft_node.http.schema.errors import ApiError, ClientGone, of_service
from goodspeed.errors import ServiceError
from goodspeed.serving.web.errors import FAILED_HERE

T = TypeVar("T")


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Returns the result of `work`; cancels the work and raises ClientGone if the user disconnects."""
    working, leaving = asyncio.ensure_future(work), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


logger = logging.getLogger("goodspeed.http")

PIECE_BYTES = 1 << 18
"""Most bytes of an answer that are passed to its connection at once."""

FIRST_S = 1.0
"""Time for which a stream's header waits for the first event: an error until then is an ordinary answer."""

SILENT_S = 10.0
"""Longest silence of a stream. Proxies drop connections that are silent for longer: nginx after 60 s by default."""


class EventStream(Response):
    """Sends events as they arrive until the user disconnects, and breaks long silences; always closes the source."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], broken: Callable[[ApiError], bytes], between: bytes
    ) -> None:
        """broken: returns the bytes that end a failed stream; between: bytes that clients ignore."""
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = asyncio.ensure_future(anext(events))
        self._others = events
        self._broken = broken
        self._between = between
        self._sending = asyncio.Lock()  # an event has several pieces
        self._sent_at = 0.0

    async def begin(self, receive: Receive) -> None:
        """Waits a moment for the first event; raises the error that comes instead, which sets the HTTP status."""
        try:
            await unless_gone(receive, asyncio.wait({self._first}, timeout=FIRST_S))
            if self._first.done():
                self._first.result()
        except BaseException:
            await self._close()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send(send))
        except ClientGone:
            logger.info("a user disconnected during a stream")
        finally:
            await self._close()

    async def _close(self) -> None:
        self._first.cancel()
        await asyncio.gather(self._first, return_exceptions=True)
        await self._others.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if not self._first.done():  # some proxies pass the header on with the first bytes of the body
            await _send_event(send, self._between)
        self._sent_at = asyncio.get_running_loop().time()
        breaking = asyncio.create_task(self._break_silence(send))
        last = b""
        try:
            await self._send_one(send, await self._first)
            async for event in self._others:
                await self._send_one(send, event)
        except ServiceError as error:
            last = self._broken(of_service(error))
        except Exception:
            logger.exception("a stream broke")
            last = self._broken(ApiError(500, FAILED_HERE))
        finally:
            breaking.cancel()
            await asyncio.gather(breaking, return_exceptions=True)
        await send({"type": "http.response.body", "body": last})

    async def _send_one(self, send: Send, event: bytes) -> None:
        async with self._sending:
            await _send_event(send, event)
        self._sent_at = asyncio.get_running_loop().time()

    async def _break_silence(self, send: Send) -> None:
        """Sends `between` whenever nothing else was sent for a while, unless the user reads too slowly."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(max(0.0, self._sent_at + SILENT_S - clock()))
            if self._sending.locked():
                self._sent_at = clock()
            elif clock() >= self._sent_at + SILENT_S:
                await self._send_one(send, self._between)


def whole(content: bytes) -> Response:
    """Returns a whole answer, a large one in pieces."""
    if len(content) <= PIECE_BYTES:
        return Response(content, media_type="application/json")

    async def sent() -> AsyncGenerator[bytes, None]:
        for piece in pieces(content):
            yield piece

    length = {"Content-Length": str(len(content))}
    return StreamingResponse(sent(), media_type="application/json", headers=length)


async def _send_event(send: Send, event: bytes) -> None:
    for piece in pieces(event):
        await send({"type": "http.response.body", "body": piece, "more_body": True})


def pieces(content: bytes) -> Iterator[bytes]:
    """Splits an answer: each piece is copied for the socket, and other tasks run between pieces."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
