"""What the HTTP faces of both nodes share: where they listen, who may use them, how errors look, how they run.

Beyond loopback a face is served only with API keys; `/health` and `/ready` are open to everybody. Knows nothing about
what is served: an ASGI application goes in.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed import api_keys
from goodspeed.counts import Answers
from goodspeed.errors import ConfigError, TransportError
from goodspeed.patience import PatientProtocol

logger = logging.getLogger("goodspeed.http")

OPEN_PATHS = ("/health", "/ready")
"""Served without a key: what asks whether a node lives has none."""

BACKLOG = 1024
GRACE_S = 2
"""How long answers may go on after the server was told to stop; whoever wants to wait longer does so before."""


@dataclass(frozen=True)
class Address:
    """HOST:PORT with the host resolved; port 0 is one that is free."""

    name: str
    ip: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.ip).is_loopback


def parse_address(text: str) -> Address:
    """HOST:PORT or [IPv6]:PORT; ConfigError when it is not that."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", text)
    if not match or int(match[2]) > 65535:
        raise ConfigError(f"--http {text!r} is not an address; write HOST:PORT, for example 127.0.0.1:8000")
    try:
        found = socket.getaddrinfo(match[1].strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--http: the host name {match[1]} cannot be resolved ({error.strerror}); check it") from None
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # `localhost` is both; clients expect the old one
    return Address(text, str(first[4][0]).partition("%")[0], int(match[2]))


class Keys:
    """API keys, kept as hashes: they can be compared in constant time, and are never shown."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def know(self, key: bytes) -> bool:
        """Looks at all of them, so that the time taken tells nothing."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key).digest()


def read_keys(path: str) -> Keys:
    """One key a line; blank lines and those that begin with # are left out. ConfigError without any, or a bad one."""
    return Keys(api_keys.read(path))


def check_reach(address: Address, keys: Keys | None) -> None:
    """ConfigError beyond loopback without keys."""
    if keys is None and not address.is_loopback:
        raise ConfigError(
            f"--http {address.name} reaches beyond this machine, and anybody who reaches the port could use it. "
            "Name a file of keys with --api-key FILE, or use a loopback address"
        )


def listen(address: Address, keys: Keys | None) -> socket.socket:
    """A listening socket. ConfigError beyond loopback without keys; TransportError when it cannot be bound."""
    check_reach(address, keys)
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    # The protocol is named because asyncio sends at once (TCP_NODELAY) only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.ip, address.port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise TransportError(f"--http: cannot listen at {address.name} ({error.strerror}); is it taken?") from None
    return listener


def url(listener: socket.socket) -> str:
    """Where a listening socket is reached; of a port 0, the real one."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def error_body(message: str, *, type: str, param: str | None = None, code: str | None = None) -> dict[str, object]:
    """An error as clients of the OpenAI API read it."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


class KeyCheck:
    """Lets through what brings one of the keys: `Authorization: Bearer KEY`, or Basic with the key as the password.

    The latter is for browsers, which ask their user; `realm` is what they call it, None where no browser is expected.
    """

    def __init__(self, app: ASGIApp, keys: Keys, realm: str | None = None) -> None:
        self._app = app
        self._keys = keys
        self._challenge = "Bearer" if realm is None else f'Basic realm="{realm}", charset="UTF-8"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS or self._keys.know(_credential(Headers(scope=scope))):
            await self._app(scope, receive, send)
            return
        body = error_body(
            "no valid API key; send one as `Authorization: Bearer KEY`",
            type="invalid_request_error",
            code="invalid_api_key",
        )
        await JSONResponse(body, 401, {"WWW-Authenticate": self._challenge})(scope, receive, send)


def _credential(headers: Headers) -> bytes:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip()
    if scheme.lower() != "basic":
        return value.encode("latin-1") if scheme.lower() == "bearer" else b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


class LocalHost:
    """Lets through what was sent to a loopback address by one of its own names.

    A page from elsewhere whose name is made to lead here (DNS rebinding) would be one with this node to a browser.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if scope["path"] in OPEN_PATHS or _is_local(host):
            await self._app(scope, receive, send)
            return
        message = (
            "without API keys only `localhost` and loopback addresses are answered to; a proxy has to send such a Host"
        )
        body = error_body(message, type="invalid_request_error", code="wrong_host")
        await JSONResponse(body, 421)(scope, receive, send)


def _is_local(host: str) -> bool:
    """Of a Host header, with or without a port."""
    name = re.sub(r":\d+\Z", "", host).strip("[]")
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Counted:
    """Counts every answer of an application; around everything else that may answer."""

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers.count(getattr(scope.get("route"), "path", None), message["status"])
            await send(message)

        await self._app(scope, receive, watch)


class _Guard:
    """The edge: what an application did not catch is logged, and is a 500 where nothing was answered yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            logger.info("an answer was cut off", extra={"path": scope["path"]})
        except Exception:
            logger.exception("a request failed", extra={"path": scope["path"]})
            if not started:
                body = error_body("this request failed here; the log says why", type="server_error", code="internal")
                await JSONResponse(body, 500)(scope, receive, send)


class _Server(uvicorn.Server):
    """Signals belong to the daemon around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Until cancelled, in this event loop; then accepts nobody, and running answers have GRACE_S to end."""
    config = uvicorn.Config(
        _Guard(app),
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what matters of it, _Guard says
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving
