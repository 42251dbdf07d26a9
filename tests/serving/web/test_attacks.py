"""A thousand connections that ask much and read nothing, or never ask: users are served beside them."""

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web import connection
from goodspeed.serving.web.guards import KeyCheck, LocalHost
from tests.serving.web.attackers import HEAD, KINDS, attacking
from tests.serving.web.serving import serving

pytestmark = pytest.mark.alone

NUM_ATTACKERS = 1000
WITHIN_S = 1.0
"""Time in which a user is answered beside them: the median of several."""

AT_MOST_S = 15.0
"""Time in which each user is answered. The attackers share the cores with what is tested, and one answer may wait while
the machine does something else; a connection that was not accepted would wait far longer or be closed."""

KEY = b"Authorization: Bearer users-key\r\n"


def app(released: asyncio.Event) -> Starlette:
    async def words(request: Request) -> Response:
        return PlainTextResponse("here")

    async def document(request: Request) -> Response:
        return PlainTextResponse("x" * 60_000)

    async def slow(request: Request) -> Response:
        async def pieces() -> AsyncIterator[str]:
            yield "begun "
            await released.wait()
            yield "and done"

        return StreamingResponse(pieces())

    routes = {"/health": words, "/v1/models": words, "/openapi.json": document, "/slow": slow}
    return Starlette(routes=[Route(path, route) for path, route in routes.items()])


@asynccontextmanager
async def target(*, keyed: bool) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """The port, and what lets slow answers end."""
    released = asyncio.Event()
    guarded = KeyCheck(app(released), Keys(["users-key"])) if keyed else LocalHost(app(released))
    async with serving(guarded) as (_, port):
        yield port, released


async def asked(port: int, path: bytes) -> float:
    """Seconds until the answer, a 200, was there."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET " + path + HEAD + KEY + b"Connection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:100]
    return time.monotonic() - started


@asynccontextmanager
async def under_attack(kind: str, port: int) -> AsyncIterator[None]:
    attack = attacking(kind, port, NUM_ATTACKERS)
    await asyncio.to_thread(attack.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(attack.__exit__, None, None, None)


async def beside(kind: str) -> tuple[list[float], bytes]:
    """Returns the times that users waited beside these attackers, and the answer of one who had begun before.

    The first user after the assault is not counted: a thousand connections cost half a second of CPU, and tests share
    their machine.
    """
    async with target(keyed=True) as (port, released):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /slow" + HEAD + KEY + b"Connection: close\r\n\r\n")
        await reader.readuntil(b"begun ")
        async with under_attack(kind, port):
            await asked(port, b"/health")  # behind all that came at once
            waits_s = [await asked(port, path) for path in (b"/health", b"/v1/models") * 5]
        released.set()
        rest = await reader.read()
        writer.close()
        return waits_s, rest


@pytest.mark.parametrize("kind", KINDS)
def test_users_are_served_beside_a_thousand_attackers(kind: str) -> None:
    waits_s, rest = asyncio.run(asyncio.wait_for(beside(kind), 120))
    assert statistics.median(waits_s) < WITHIN_S
    assert max(waits_s) < AT_MOST_S
    assert b"and done" in rest


def test_without_keys_who_reads_nothing_makes_room_after_a_moment() -> None:
    """All are admitted alike, so what tells them apart is that nothing of their answers is taken."""

    async def waited() -> float:
        async with target(keyed=False) as (port, _), under_attack("document", port):
            started, answered_after_s = time.monotonic(), math.inf
            while answered_after_s >= WITHIN_S:
                with suppress(OSError, AssertionError):
                    answered_after_s = await asked(port, b"/v1/models")
                await asyncio.sleep(0.1)
            return time.monotonic() - started

    assert asyncio.run(asyncio.wait_for(waited(), 120)) < connection.STALLED_S + AT_MOST_S
