"""A request's body: bounded while it is read, whoever sends it, and then read as one of the schemas.

Knows nothing about what is asked for.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draft_node.serve.api.request import elements
from draft_node.serve.api.request.errors import ApiError, ClientGone, of_validation
from draft_node.text.fair_queue import FairQueue
from goodspeed.node.web import OPEN_PATHS, user_of

M = TypeVar("M", bound=BaseModel)

LARGE = 1 << 15
"""Bytes from which a body is read on another thread: the event loop has sessions to drive."""


IGNORED_MEMBERS = "goodspeed.ignored"
"""The entry of a request's state with the names of its members that are ignored."""


class BodyLimit:
    """Reads every body before anything else happens, up to `max_bytes`; compressed ones are refused.

    The header `X-GoodSpeed-Ignored` of the answer names members of the body that were ignored.

    What is open to everybody has none, and none is kept for it. The connection stays after a refusal: the server reads
    what is left of the body and drops it. Closed, it would be reset, and many clients never see the answer.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(Headers(scope=scope), receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
        except ClientGone:
            return
        else:
            await self._app(scope, _again(body, receive), _telling(send, scope))

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(415, "compressed bodies are not taken; send it as it is", code="unsupported_encoding")
        length = headers.get("content-length", "0")
        self._check(int(length) if length.isdecimal() else 0)
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            self._check(len(body))
        return bytes(body)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise ApiError(413, f"the body is larger than {self._max_bytes} bytes, the most that is taken")


def ignored_of(scope: Scope) -> set[str]:
    """The names of a request's members that are ignored; more can be added until the answer begins."""
    names: set[str] = scope.setdefault("state", {}).setdefault(IGNORED_MEMBERS, set())
    return names


def _telling(send: Send, scope: Scope) -> Send:
    """Adds a header with the names of what was ignored, if anything was."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start" and (names := ignored_of(scope)):
            told = ", ".join(sorted(names)).encode()
            message["headers"] = [*message["headers"], (b"x-goodspeed-ignored", told)]
        await send(message)

    return tell


def _again(body: bytes, receive: Receive) -> Receive:
    """The body as one message, and then what comes: the end of the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def reads(schema: type[M], bodies: FairQueue) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """A dependency: the body as this schema; ApiError names what is wrong with it. Large ones are read in turn.

    Several at once would pass the interpreter on to each other, and the event loop would have it when all are read.
    """

    async def read(request: Request) -> M:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "the body must be JSON, with Content-Type: application/json")
        body, ignored = await request.body(), ignored_of(request.scope)
        if len(body) < LARGE:
            return validated(schema, body, ignored)
        return await bodies.run(user_of(request.scope), len(body), lambda: validated(schema, body, ignored))

    return read


def validated(schema: type[M], body: bytes, ignored: set[str] | None = None) -> M:
    """ignored: gets the names of members that are ignored."""
    elements.check(body)
    try:
        return schema.model_validate_json(body, context=ignored)
    except ValidationError as error:
        raise of_validation(error) from None
