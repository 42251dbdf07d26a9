"""The HTTP server: addresses, keys, and its end."""

import asyncio
import json
import os
import socket
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from httpx2 import Response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.errors import ConfigError, TransportError
from goodspeed.serving import api_keys
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.web import server
from goodspeed.serving.web.address import parse_address, url
from goodspeed.serving.web.guards import Counted, KeyCheck, LocalHost
from tests.listening import listen
from tests.serving.web.serving import hello, serving
from tests.waiting import until

KEYS = Keys(["first-key", "second-key"])


def ask(app: ASGIApp, path: str = "/", credential: str = "") -> Response:
    return TestClient(app).get(path, headers={"Authorization": credential})


def ask_a_server(app: ASGIApp) -> tuple[int, bytes]:
    """Sends one request over a real socket, to a server that is stopped afterwards."""

    async def talk() -> bytes:
        async with serving(app) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        return answer

    head, _, body = asyncio.run(asyncio.wait_for(talk(), 30)).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("host", "port", "ip"),
    [
        ("127.0.0.1", 8000, "127.0.0.1"),
        ("localhost", 80, "127.0.0.1"),
        ("[::1]", 0, "::1"),
        ("0.0.0.0", 65535, "0.0.0.0"),
    ],
)
def test_addresses(host: str, port: int, ip: str) -> None:
    assert parse_address(f"{host}:{port}") == (ip, port)


@pytest.mark.parametrize(
    "text", ["", "8000", ":8000", "127.0.0.1", "127.0.0.1:65536", "http://127.0.0.1:80", "a b:1", "::1:80"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "a" * 64])
def test_an_unknown_host_is_named(host: str) -> None:
    with pytest.raises(TransportError, match=f"--http: the host name '{host}' cannot be resolved"):
        parse_address(f"{host}:80")


def test_beyond_loopback_only_with_keys() -> None:
    with pytest.raises(ConfigError, match="--api-key FILE"):
        listen("0.0.0.0:0")
    with listen("0.0.0.0:0", KEYS) as listener:
        assert url(listener).startswith("http://0.0.0.0:")


async def test_what_is_written_is_sent_at_once() -> None:
    """The second part of an answer would otherwise wait for the client's word on the first: 40 ms."""
    connected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen()
    async with await asyncio.start_server(look, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.close()
        assert await connected != 0


def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the office\nfirst-key\n\n  second-key  \n")
    keys = Keys(api_keys.read(str(file)))
    assert keys.know(b"first-key")
    assert keys.know(b"second-key")
    assert not any(map(keys.know, (b"", b"# of the office", b"first-key\n", b"third-key")))


@pytest.mark.parametrize(
    ("content", "what"),
    [("", "no key"), ("# nothing\n", "no key"), ("short\n", "line 1"), ("good-key\ntwo words\n", "line 2")],
)
def test_a_bad_file_of_keys_is_said_without_showing_it(content: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ConfigError, match=what) as error:
        api_keys.read(str(file))
    assert "words" not in str(error.value)
    with pytest.raises(ConfigError, match="cannot read"):
        api_keys.read(str(tmp_path / "missing"))


def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(api_keys, "LOOK_S", 0.0)
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text("first-key\n")
    keys = Keys.of_file(str(file))
    file.write_text("first-key\nsecond-key\n")
    assert keys.know(b"second-key")
    (tmp_path / "new").touch(0o600)
    (tmp_path / "new").write_text("second-key\n")
    (tmp_path / "new").replace(file)
    assert not keys.know(b"first-key"), "a key that was taken out"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    spoilt = (lambda: file.write_text("short\n"), lambda: file.write_text(""), file.unlink, lambda: os.mkfifo(file))
    for spoil in spoilt:
        caplog.clear()
        spoil()
        assert keys.know(b"second-key"), "a bad file changes nothing"
        assert not keys.know(b"short")
        assert [record.levelname for record in caplog.records] == ["ERROR"], "and is told once"
        assert "second-key" not in caplog.text
    file.unlink()
    file.write_text("third-key\n")
    assert keys.know(b"third-key")
    assert not keys.know(b"second-key")


def test_a_file_of_keys_is_looked_at_once_a_second(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key\n")
    keys = Keys.of_file(str(file))
    assert keys.know(b"first-key")
    file.write_text("second-key\n")
    assert not keys.know(b"second-key"), "strangers must not make the node read"


@pytest.mark.parametrize("credential", ["Bearer first-key", "bearer  second-key", "Basic YW55Ym9keTpzZWNvbmQta2V5"])
def test_a_key_lets_in(credential: str) -> None:
    assert ask(KeyCheck(hello, KEYS), credential=credential).status_code == 200


@pytest.mark.parametrize(
    "credential", ["", "first-key", "Bearer", "Bearer first-keyx", "Basic first-key", "Basic ???", "Digest first-key"]
)
def test_anything_else_does_not(credential: str) -> None:
    answer = ask(KeyCheck(hello, KEYS), credential=credential)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert [ask(KeyCheck(hello, KEYS), path).status_code for path in ("/health", "/ready")] == [200, 200]
    browser = ask(KeyCheck(hello, KEYS, realm="GoodSpeed"), "/metrics", credential)
    assert browser.headers["www-authenticate"].startswith('Basic realm="GoodSpeed"')


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8000", 200),
        ("127.9.9.9", 200),
        ("[::1]:8000", 200),
        ("evil.example:8000", 421),  # whose name was made to lead here
        ("localhost.evil.example", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ],
)
def test_without_keys_a_node_answers_to_its_own_names_only(host: str, status: int) -> None:
    client = TestClient(LocalHost(hello))
    assert client.get("/v1/models", headers={"Host": host}).status_code == status
    assert client.get("/health", headers={"Host": host}).status_code == 200
    told = client.get("/v1/messages", headers={"Host": host})
    assert told.status_code == status
    assert status == 200 or told.json()["type"] == "error"


def test_what_nobody_caught_is_a_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    status, body = ask_a_server(AsyncMock(side_effect=ZeroDivisionError("as ordered")))
    assert (status, json.loads(body)["error"]["type"]) == (500, "server_error")
    assert "as ordered" in caplog.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/chat/completions", 503), ("/v1/completions", 503), ("/v1/responses", 503), ("/v1/messages", 529)],
)
def test_an_answer_that_the_end_of_the_server_cuts_off_is_an_error_of_its_api(path, status, monkeypatch) -> None:
    async def cut_off() -> bytes:
        entered = asyncio.Event()

        async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
            entered.set()
            await asyncio.Event().wait()

        async with serving(waiting) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode())
            await entered.wait()
        answer = await reader.read()
        writer.close()
        return answer

    monkeypatch.setattr(server, "GRACE_S", 0.01)
    head, _, body = asyncio.run(asyncio.wait_for(cut_off(), 30)).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert b"retry-after: 5" in head
    error = json.loads(body)["error"]
    assert "shut down before the answer was complete; ask another one" in error["message"]
    assert error["type"] == ("overloaded_error" if status == 529 else "service_unavailable")


def test_every_answer_is_counted_by_its_route() -> None:
    async def model(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["name"])

    answers = ResponseCounts()
    app = Counted(KeyCheck(Starlette(routes=[Route("/models/{name}", model)]), KEYS), answers)
    for path, credential in (("/models/a", "Bearer first-key"), ("/models/b", "Bearer first-key"), ("/models/a", "")):
        ask(app, path, credential)
    ask(app, "/wp-login.php", "Bearer first-key")
    assert answers == {("/models/{name}", 200): 2, ("other", 401): 1, ("other", 404): 1}


@pytest.mark.parametrize("is_made", [False, True], ids=["being made", "being sent"])
async def test_a_response_is_waited_for(is_made: bool) -> None:
    released, num_sent = asyncio.Event(), 0

    async def send(message: Message) -> None:
        nonlocal num_sent
        num_sent += 1
        await released.wait()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not is_made:
            await released.wait()
        await PlainTextResponse("x")(scope, receive, send)

    counted = Counted(app, ResponseCounts())
    assert await counted.all_sent(0.0)
    answering = asyncio.create_task(counted({"type": "http"}, receive=AsyncMock(), send=send))
    await until(lambda: counted._num_begun)
    assert not await counted.all_sent(0.01)
    released.set()
    assert await counted.all_sent(30.0)
    assert num_sent == 2
    await answering


async def test_the_rest_of_a_body_is_not_waited_for() -> None:
    chunks = asyncio.Queue[Message]()
    reading = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            reading.set()
        await receive()  # until its client leaves

    counted = Counted(app, ResponseCounts())
    answering = asyncio.create_task(counted({"type": "http"}, receive=chunks.get, send=AsyncMock()))
    chunks.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    await reading.wait()
    assert await counted.all_sent(1.0)
    chunks.put_nowait({"type": "http.request", "body": b"}"})
    await until(lambda: counted._num_begun)
    assert not await counted.all_sent(0.01)
    chunks.put_nowait({"type": "http.disconnect"})
    assert await counted.all_sent(30.0)
    await answering
