"""Several texts of one request at once while their user is there, and server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draft_node.config import DraftConfig
from draft_node.http.errors import ApiError, ClientGone, of_service
from draft_node.service.answer import Piece
from draft_node.service.request import Begun, Ended, Wanted
from draft_node.service.service import Service
from goodspeed.errors import Busy, ServiceError

T = TypeVar("T")
Items: TypeAlias = AsyncGenerator[tuple[int, Begun | Piece | Ended], None]


def check_room(service: Service, config: DraftConfig, num_texts: int, n: int) -> None:
    """All of a request's texts are let in, or none. n: the request's choices for each prompt."""
    most = config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if n > 1 else "prompt")
    if num_texts > most - service.num_running - service.num_waiting:
        raise Busy("busy", f"{service.num_running} texts are written and {service.num_waiting} wait; ask again later")


async def write(service: Service, texts: Sequence[Wanted]) -> Items:
    """Everybody's pieces as they come, with the text's number. When one fails, all end.

    Leaving the iteration early closes all sessions.
    """
    arrived: asyncio.Queue[tuple[int, Begun | Piece | Ended | Exception]] = asyncio.Queue()

    async def run(index: int, wanted: Wanted) -> None:
        try:
            async with aclosing(service.write(wanted)) as items:
                async for item in items:
                    arrived.put_nowait((index, item))
        except Exception as error:  # raised again below, where the user is
            arrived.put_nowait((index, error))

    tasks = [asyncio.create_task(run(index, wanted)) for index, wanted in enumerate(texts)]
    num_left = len(tasks)
    try:
        while num_left:
            index, item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            yield index, item
            num_left -= isinstance(item, Ended)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to; it is cancelled, and ClientGone raised, once the user disconnects."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_disconnected(receive))
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
