"""The verify node's HTTP application, in its process: the live page, its snapshots, metrics, and health checks.

Everything is read-only: GET and HEAD, no forms, no cookies. The page has no inline script, and loads only from this
server.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from goodspeed import __version__
from goodspeed.serving.loop import wait_at_most
from goodspeed.serving.measuring import metrics
from goodspeed.serving.web import server
from goodspeed.serving.web.address import BoundAddress
from goodspeed.serving.web.errors import FAILED_HERE, error_answer
from goodspeed.serving.web.guards import PAGE_HEADERS, KeyCheck, LocalHost, with_headers
from goodspeed.wire.channels import VerifyChannel
from verify_node.config import VerifyConfig
from verify_node.core.core import VerifyCore
from verify_node.watch.metrics import VerifyCollector
from verify_node.watch.snapshot import Node, Snapshot, Watch

PAGE = Path(__file__).parent / "page"
FILES = {f"/{file.relative_to(PAGE)}": file for file in PAGE.rglob("*.*")} | {"/": PAGE / "index.html"}
"""The page's files by path."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    **PAGE_HEADERS,
}

REALM = "GoodSpeed verify node"

PERIOD_S = 0.4
MAX_VIEWERS = 32

RETRY = b"retry: 1000\n\n"
"""Sets a browser's delay before it reconnects, in milliseconds."""


class Feed:
    """Server-sent events of snapshots. Takes a few snapshots per second while there are viewers, shared by all viewers.

    There are no queues. A viewer gets the newest snapshot when it can receive one, so a viewer that stops reading
    misses some and costs nothing.
    """

    def __init__(self, take: Callable[[float], Snapshot], clock: Callable[[], float]) -> None:
        """take: takes a snapshot; its argument is the time by `clock`, in seconds."""
        self.num_viewers = 0
        self._take = take
        self._clock = clock
        self._event = b""
        self._due = 0.0
        self._ended = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        """Answers a request for events; 503 if the feed is full."""
        if self.num_viewers >= MAX_VIEWERS:
            message = f"{MAX_VIEWERS} viewers are connected already; close one, or try later"
            return error_answer(request.scope, 503, message, "overloaded", headers={"Retry-After": "5"})
        if request.method == "HEAD":  # gets no events, and must not wait for their end
            return Response(media_type="text/event-stream")
        return StreamingResponse(self.events(), media_type="text/event-stream")

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yields events until the feed ends; yields none if the feed is full: others came since the request."""
        if self.num_viewers >= MAX_VIEWERS:
            return
        self.num_viewers += 1
        try:
            yield RETRY
            while not self._ended.is_set():
                yield self._newest()
                await wait_at_most(PERIOD_S, self._ended)
        finally:
            self.num_viewers -= 1

    def end(self) -> None:
        self._ended.set()

    def _newest(self) -> bytes:
        now = self._clock()
        if now >= self._due:
            self._event = b"data: " + msgspec.json.encode(self._take(now)) + b"\n\n"
            self._due = now + 0.9 * PERIOD_S  # a viewer that wakes a moment early must not wait for another period
        return self._event


async def serve(
    config: VerifyConfig,
    core: VerifyCore,
    channel: VerifyChannel,
    bound: BoundAddress,
    beside: Callable[[], Coroutine[None, None, None]],
) -> None:
    """Serves the page at `bound`, whose socket listens already, while `beside` runs, until cancelled."""
    node = Node(
        boot_id=core.welcome.boot_id.hex(),
        version=__version__,
        model=core.welcome.target,
        policy=config.policy,
        rounds=config.rounds,
        budget=core.limits.budget,
    )
    feed = Feed(Watch(core, node, lambda: time.time() - time.monotonic()).take, time.monotonic)
    exposition = partial(metrics.exposition, metrics.create_registry(VerifyCollector(core, channel)))
    app = create_app(feed, exposition, lambda: not core.draining, core.sessions.story.all)
    guarded = LocalHost(app) if bound.keys is None else KeyCheck(app, bound.keys, REALM)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(guarded, bound.listener))
        try:
            await beside()
        finally:
            feed.end()


def create_app(
    feed: Feed,
    exposition: Callable[[], tuple[bytes, str]],
    is_ready: Callable[[], bool],
    stories: Callable[[], dict[str, list[str]]],
) -> Starlette:
    """Creates the ASGI application; the caller adds the check of keys.

    exposition: returns the text of `/metrics` and its content type. is_ready: True while draft nodes may connect.
    stories: returns the newest events by session.
    """

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        if is_ready():
            return JSONResponse({"status": "ok"})
        return error_answer(request.scope, 503, "not ready: stopping", "draining")

    async def serve_metrics(request: Request) -> Response:
        content, media_type = exposition()
        return Response(content, headers={"Content-Type": media_type})

    async def debug(request: Request) -> Response:
        return JSONResponse({"stories": stories()})

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            Route("/metrics", serve_metrics),
            Route("/events", feed.answer),
            Route("/debug", debug),
            *(_file(path, file) for path, file in FILES.items()),
        ],
        exception_handlers={404: _missing, 405: _read_only, Exception: _failed},
        middleware=[Middleware(with_headers, lambda scope: HEADERS)],
    )


NO_TEXTS = (
    "this is a verify node, but only draft nodes serve texts: start one with "
    "`goodspeed-draft --model MODEL --verify tcp://HOST:PORT --http HOST:PORT`, and send the request there"
)


async def _missing(request: Request, error: Exception) -> Response:
    path = request.url.path
    what = NO_TEXTS if path.startswith("/v1/") else f"there is nothing at {path[:200]}"
    return error_answer(request.scope, 404, what, "not_found")


async def _read_only(request: Request, error: Exception) -> Response:
    what = f"{request.method} {request.url.path} is not served; use GET"
    return error_answer(request.scope, 405, what, "method_not_allowed", headers={"Allow": "GET, HEAD"})


async def _failed(request: Request, error: Exception) -> Response:
    """Answers 500; the server gets the exception, too, and logs it."""
    return error_answer(request.scope, 500, FAILED_HERE, "internal", headers=HEADERS)


def _file(path: str, file: Path) -> Route:
    async def get(request: Request) -> Response:
        return FileResponse(file)

    return Route(path, get)
