"""Clients that ask for nothing, or take nothing, are disconnected; those that wait for an answer are not."""

import asyncio
import json
import socket
from contextlib import suppress

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from goodspeed.serving.web import connection
from goodspeed.serving.web.guards import LocalHost
from tests.serving.web.serving import hello, serving

pytestmark = pytest.mark.nodes

HEAD = b" / HTTP/1.1\r\nHost: localhost\r\n"


async def begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"slow", "more_body": True})


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body, and answers long after patience with a request would have ended."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    await begin(send)
    await asyncio.sleep(2 * connection.REQUEST_TIMEOUT_S)
    await send({"type": "http.response.body", "body": b"ly"})


async def said(words: bytes, app: ASGIApp = hello) -> bytes:
    """The answer, until the server closes the connection."""
    async with serving(LocalHost(app)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(words)
        answer = b""
        with suppress(ConnectionResetError):
            while piece := await reader.read(1 << 16):
                answer += piece
        writer.close()
        return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_S", 0.2)


@pytest.mark.parametrize(
    "words", [b"", b"GET" + HEAD, b"POST" + HEAD + b"Content-Length: 9\r\n\r\nhalf"], ids=["none", "head", "body"]
)
async def test_who_does_not_ask_in_full_is_disconnected(words: bytes) -> None:
    assert await said(words, slow) == b""


@pytest.mark.parametrize("rest", [b"", b"GET /"], ids=["nothing", "part of another"])
async def test_who_has_asked_is_answered_however_long_it_takes_and_then_disconnected(rest: bytes) -> None:
    assert (await said(b"GET" + HEAD + b"\r\n" + rest, slow)).endswith(b"\r\n\r\nslowly")


async def test_who_is_being_answered_stays_connected() -> None:
    """One host may have five of six connections. Each client is being answered before the next one connects."""
    released = asyncio.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send)
        await released.wait()
        await send({"type": "http.response.body", "body": b"ly"})

    async with serving(LocalHost(held), max_connections=6) as address:
        lines = []
        for _ in range(7):
            lines.append(await asyncio.open_connection(*address))
            lines[-1][1].write(b"GET" + HEAD + b"\r\n")
            await asyncio.wait([asyncio.create_task(lines[-1][0].readuntil(b"slow"))])
        released.set()
        rests = await asyncio.gather(*(reader.readexactly(2) for reader, _ in lines), return_exceptions=True)
        for _, writer in lines:
            writer.close()
    assert [rest == b"ly" for rest in rests] == [True] * 5 + [False] * 2


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer of 64 MiB."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1024):
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def taken(pause_s: float) -> int:
    """Bytes of that answer that somebody gets who takes 64 KiB at a time, with pauses."""
    async with serving(LocalHost(endless)) as address:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.setblocking(False)
            loop, sizes = asyncio.get_running_loop(), list[int]()
            await loop.sock_connect(connection, address)
            await loop.sock_sendall(connection, b"GET" + HEAD + b"Connection: close\r\n\r\n")
            with suppress(ConnectionResetError):
                while piece := await loop.sock_recv(connection, 1 << 16):
                    sizes.append(len(piece))
                    if len(sizes) < 10:
                        await asyncio.sleep(pause_s)
            return sum(sizes)


async def test_who_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 1.0)
    assert await taken(pause_s=3.0) < 1 << 26


async def test_who_takes_little_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nine pauses together are longer than an answer may wait to be taken; each is so much shorter that this
    process, in which the client runs as well, may stand still for seconds."""
    monkeypatch.setattr(connection, "WRITE_TIMEOUT_S", 4.0)
    assert await taken(pause_s=0.5) > 1 << 26


@pytest.mark.parametrize("stalled_s", [0.0, 1000.0])
async def test_who_takes_nothing_makes_room(stalled_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One host may have one of two connections."""
    monkeypatch.setattr(connection, "STALLED_S", stalled_s)
    is_behind = asyncio.Event()
    pause = connection.Connection.pause_writing

    def paused(self: connection.Connection) -> None:
        pause(self)
        is_behind.set()

    monkeypatch.setattr(connection.Connection, "pause_writing", paused)
    async with serving(LocalHost(endless), max_connections=2) as address:
        _, silent = await asyncio.open_connection(*address, limit=1 << 10)
        silent.write(b"GET" + HEAD + b"\r\n")
        await is_behind.wait()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET" + HEAD + b"\r\n")
        answers = await asyncio.gather(reader.readexactly(12), return_exceptions=True)
        assert isinstance(answers[0], bytes) == (stalled_s == 0)
        silent.transport.abort()
        writer.transport.abort()


async def test_few_requests_may_be_sent_ahead() -> None:
    request = b"GET" + HEAD + b"\r\n"
    answers = await said(request * 1000)
    assert answers.count(b"hello") == answers.count(b"connection: close") + connection.MAX_AHEAD
    assert answers.count(b"connection: close") == 1
    few = request * (connection.MAX_AHEAD - 1) + b"GET" + HEAD + b"Connection: close\r\n\r\n"
    assert (await said(few)).count(b"hello") == connection.MAX_AHEAD


async def test_who_is_not_let_in_may_send_one_ahead() -> None:
    assert (await said(b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n" * 3)).count(b"HTTP/1.1 421 ") == 2


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"POST" + HEAD + b"Content-Length: 5\r\n" + CHUNKED, "Content-Length"),
        (b"POST" + HEAD + CHUNKED + b"Content-Length: 5\r\n", "Content-Length"),
        (b"POST" + HEAD.replace(b"1.1", b"1.0") + CHUNKED, "HTTP/1.0"),
    ],
)
async def test_requests_with_two_lengths_are_refused(words: bytes, why: str) -> None:
    """The connection ends: nothing after such a request is looked at."""
    answer = await said(words + b"\r\n0\r\n\r\nGET" + HEAD + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert error["code"] == "invalid_http"
    assert why in error["message"]


@pytest.mark.parametrize("words", [b"no HTTP\r\n\r\n", b"GET" + HEAD + b"X: " + b"x" * (1 << 17)], ids=["none", "long"])
async def test_what_is_no_http_or_has_an_oversized_head_is_refused(words: bytes) -> None:
    answer = await said(words)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"hello" not in answer


@pytest.mark.parametrize("beginning", [b"", b"2\r\nab\r\n"], ids=["first", "second"])
async def test_a_body_that_breaks_leaves_no_traceback(beginning: bytes, caplog: pytest.LogCaptureFixture) -> None:
    words = b"POST" + HEAD + CHUNKED + b"\r\n" + beginning + b"no number\r\n"
    for app in (hello, slow):
        await said(words, app)
    assert "Traceback" not in caplog.text
