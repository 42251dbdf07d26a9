"""Who asks for nothing is disconnected; who waits for an answer is not."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from goodspeed.web import listen, parse_address, patience, serve

HEAD = b" / HTTP/1.1\r\nHost: localhost\r\n"


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body, and answers long after patience with a request would have ended."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"slow", "more_body": True})
    await asyncio.sleep(2 * patience.REQUEST_S)
    await send({"type": "http.response.body", "body": b"ly"})


async def told(*words: bytes) -> bytes:
    """What the server says until it closes the connection."""
    listener = listen(parse_address("127.0.0.1:0"), None)
    serving = asyncio.create_task(serve(slow, listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.writelines(words)
    answer = await reader.read()
    writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "REQUEST_S", 0.2)


@pytest.mark.parametrize(
    "words", [b"", b"GET" + HEAD, b"POST" + HEAD + b"Content-Length: 9\r\n\r\nhalf"], ids=["none", "head", "body"]
)
def test_who_does_not_ask_in_full_is_disconnected(words: bytes) -> None:
    assert asyncio.run(asyncio.wait_for(told(words), 30)) == b""


def test_who_has_asked_is_answered_however_long_it_takes() -> None:
    answer = asyncio.run(asyncio.wait_for(told(b"GET" + HEAD + b"\r\n"), 30))
    assert answer.endswith(b"\r\n\r\nslowly")


def test_who_asks_on_in_part_is_disconnected() -> None:
    answer = asyncio.run(asyncio.wait_for(told(b"GET" + HEAD + b"\r\n", b"GET /"), 30))
    assert answer.endswith(b"\r\n\r\nslowly")


async def answered(max_connections: int, num_wanted: int) -> list[bool]:
    """Whether who connected first, second and so on is answered; all are connected before the first one asks."""
    listener = listen(parse_address("127.0.0.1:0"), None)
    serving = asyncio.create_task(serve(slow, listener, max_connections=max_connections))
    lines = [await asyncio.open_connection(*listener.getsockname()) for _ in range(num_wanted)]
    answers = await asyncio.gather(*(_ask(*line) for line in lines))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return answers


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    try:
        writer.write(b"GET" + HEAD + b"\r\n")
        return (await reader.read()).endswith(b"slowly")
    except ConnectionResetError:
        return False
    finally:
        writer.close()


def test_more_connections_than_there_may_be_are_closed_at_once() -> None:
    assert asyncio.run(asyncio.wait_for(answered(3, 5), 30)) == [True] * 3 + [False] * 2
