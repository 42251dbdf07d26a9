"""Server-sent events: chunks, an error where a stream breaks, and `[DONE]`. Large ones are sent in pieces.

Knows nothing about what the chunks say.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Generic, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draft_node.serve.api.request.errors import ApiError, ClientGone, of_service
from draft_node.serve.api.response.texts import unless_gone
from goodspeed.errors import ServiceError

M = TypeVar("M")

logger = logging.getLogger("goodspeed.http")

DONE = b"data: [DONE]\n\n"

PIECE_BYTES = 1 << 18
"""The most of an answer that is given to its connection at once."""


class EventStream(Response, Generic[M]):
    """Sends chunks as they come, for as long as somebody reads them; closes their source in any case."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[M, None],
        *,
        write: Callable[[M], bytes],
        last: bytes = DONE,
        broken: Callable[[ApiError], bytes] | None = None,
    ) -> None:
        """write: makes the bytes of a chunk; last: what is sent at the end of a stream that did not break, and broken
        makes what is sent at the end of one that did."""
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._write = write
        self._last = last
        self._broken = broken or _broken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._chunks):
            try:
                await unless_gone(receive, self._send(send))
            except ClientGone:
                logger.info("a user left in mid-stream")

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        broken = None
        try:
            async for chunk in self._chunks:
                for piece in pieces(self._write(chunk)):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except ServiceError as error:
            broken = of_service(error)
        except Exception:
            logger.exception("a stream broke")
            broken = ApiError(500, "this stream broke here; the log says why", code="internal")
        last = self._last if broken is None else self._broken(broken)
        await send({"type": "http.response.body", "body": last})


def pieces(content: bytes) -> Iterator[bytes]:
    """An answer in pieces: each is copied for the socket, and between them others have the event loop."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _broken(error: ApiError) -> bytes:
    return b"data: " + json.dumps(error.body).encode() + b"\n\n" + DONE


def event_of(chunk: BaseModel) -> bytes:
    return b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n"


async def begun(receive: Receive, chunks: AsyncGenerator[M, None]) -> AsyncGenerator[M, None]:
    """The same chunks, once the first of them is there: what fails before that can still be said by a status."""

    async def first() -> M:
        return await anext(chunks)

    return _chain(await unless_gone(receive, first()), chunks)


async def _chain(first: M, chunks: AsyncGenerator[M, None]) -> AsyncGenerator[M, None]:
    async with aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk
