"""ASGI middleware of both nodes: checks of the API key and of the Host header, added headers, counts of responses."""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.serving.api_keys import Keys
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.web.connection import authorize
from goodspeed.serving.web.connection_limit import host_of
from goodspeed.serving.web.errors import error_answer

OPEN_PATHS = ("/health", "/ready")
"""Paths served without a key, for health probes."""

USER = "goodspeed.user"
"""Entry of a request's state with the user's name, derived from the key."""

PERSON = b"goodspeed-user"
"""Salt that makes a user's name differ from the key's digest in `api_keys.py`."""


PAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of a page, in addition to its policy: nothing of it is guessed, told elsewhere, embedded or stored."""


def with_headers(app: ASGIApp, of: Callable[[Scope], Mapping[str, str]]) -> ASGIApp:
    """Adds headers to an application's answers. of: returns those of a request, when its answer begins."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in of(scope).items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await app(scope, receive, add)

    return served


def user_of(scope: Scope) -> str:
    """Returns a name for the user who sent a request: from the key, else the host, else unique to the request.

    A name from the key survives a restart and does not reveal the key.
    """
    name = scope.get("state", {}).get(USER)
    client = scope.get("client")
    return str(name or (host_of(client[0]) if client else f"request {id(scope)}"))


class KeyCheck:
    """Passes requests with a known key: `Authorization: Bearer KEY`, `x-api-key: KEY`, or Basic with a key as password.

    `x-api-key` is for clients of Anthropic's API, Basic for browsers. realm: shown by the browser when it asks its user
    for the key; None: no browser expected.
    """

    def __init__(
        self, app: ASGIApp, keys: Keys, realm: str | None = None, is_open: Callable[[Scope], bool] = lambda scope: False
    ) -> None:
        """is_open: returns whether a request outside of OPEN_PATHS needs no key either."""
        self._app = app
        self._keys = keys
        self._is_open = is_open
        self._challenge = "Bearer" if realm is None else f'Basic realm="{realm}", charset="UTF-8"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        credential = _credential(Headers(scope=scope))
        if self._keys.know(credential):
            authorize(scope)
            name = hashlib.blake2b(credential, digest_size=16, person=PERSON).hexdigest()
            scope.setdefault("state", {})[USER] = name
            await self._app(scope, receive, send)
            return
        what = "no valid API key; send one as `Authorization: Bearer KEY`, or as `x-api-key: KEY`"
        challenge = {"WWW-Authenticate": self._challenge}
        await error_answer(scope, 401, what, "invalid_api_key", headers=challenge)(scope, receive, send)


def _credential(headers: Headers) -> bytes:
    """Returns the key that a request sends: in `Authorization`, or without that header in `x-api-key`."""
    scheme, _, value = headers.get("authorization", f"bearer {headers.get('x-api-key', '')}").partition(" ")
    value = value.strip()
    if scheme.lower() != "basic":
        return value.encode("latin-1") if scheme.lower() == "bearer" else b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


class LocalHost:
    """Passes requests whose Host is `localhost` or a loopback address; answers 421 to all others.

    Prevents DNS rebinding: a foreign page whose name resolves to loopback would share this node's origin in a browser.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if scope["path"] in OPEN_PATHS or is_local(host):
            if scope["path"] not in OPEN_PATHS:
                authorize(scope)
            await self._app(scope, receive, send)
            return
        message = (
            "this node has no API keys, so it answers only if Host is `localhost` or a loopback address; "
            "send that Host, or start it with --api-key FILE"
        )
        await error_answer(scope, 421, message, "wrong_host")(scope, receive, send)


def is_local(host: str) -> bool:
    """True if a Host header, with or without a port, names loopback."""
    name = re.sub(r":\d+\Z", "", host).strip("[]")
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Counted:
    """Counts every response of an application; must be the outermost middleware."""

    def __init__(self, app: ASGIApp, answers: ResponseCounts) -> None:
        self._app = app
        self._answers = answers
        self._num_begun = 0  # requests whose response is being made or sent, but not those whose body is awaited
        self._idle = asyncio.Event()
        self._idle.set()

    async def all_sent(self, timeout_s: float) -> bool:
        """Waits until no response is being made or sent, at most timeout_s; False if one still is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout_s)):
                while self._num_begun:  # another may have begun since the event was set
                    await self._idle.wait()
        return not self._num_begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._answers[route, message["status"]] += 1
            await send(message)

        is_whole = False

        async def receive_counted() -> Message:
            nonlocal is_whole
            if is_whole:
                return await receive()
            self._begun(-1)  # a body that does not come to its end delays no shutdown
            try:
                message = await receive()
            finally:
                self._begun(1)
            is_whole = not message.get("more_body", False)
            return message

        self._begun(1)
        try:
            await self._app(scope, receive_counted, watch)
        finally:
            self._begun(-1)

    def _begun(self, num: int) -> None:
        self._num_begun += num
        if self._num_begun:
            self._idle.clear()
        else:
            self._idle.set()
