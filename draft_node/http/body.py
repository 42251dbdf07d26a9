"""A request's body: bounded while it is read, counted, and then read as one of the schemas."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draft_node.http.errors import ApiError, ClientGone, of_validation
from draft_node.service.queues import FairQueue
from goodspeed.serving.web import OPEN_PATHS, user_of

M = TypeVar("M", bound=BaseModel)

MAX_BODY_BYTES = 4 << 20
"""The largest body of a request."""

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


REF = "#/components/schemas/{model}"


def takes(schema: type[BaseModel]) -> dict[str, Any]:
    """Returns a route's body as the OpenAPI document has it: the framework does not read it."""
    content = {"application/json": {"schema": {"$ref": REF.format(model=schema.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def validated(schema: type[M], body: bytes, ignored: set[str] | None = None) -> M:
    """ignored: gets the names of members that are ignored."""
    check_elements(body)
    try:
        return schema.model_validate_json(body, context=ignored)
    except ValidationError as error:
        raise of_validation(error) from None


MAX_CONTAINERS = 1 << 12
"""Lists and objects. A conversation has one for each message and each part of one."""

MAX_STRINGS = 1 << 14
"""Strings, names of members included."""

MAX_VALUES = 1 << 18
"""Numbers and all else that commas part: 64 prompts of 4,096 token ids."""

MAX_BARE_BYTES = 2 << 20
"""Bytes besides strings and spaces: eight for each value. Numbers of 19 digits and more take longer than others."""


def check_elements(*texts: bytes) -> None:
    """ApiError 413 for more than these in all texts; whether each is valid JSON is for others to say.

    A body is one text; what is JSON inside of its strings are others.
    """
    num_strings = 0
    outsides = list[bytes]()
    for text in texts:
        pieces = _without_escapes(text).split(b'"', 2 * MAX_STRINGS + 1)  # outside of strings, inside, outside...
        num_strings += len(pieces) // 2
        if num_strings > MAX_STRINGS:
            raise _too_many(MAX_STRINGS, "strings")
        outsides.append(b"".join(pieces[::2]))
    outside = b" ".join(outsides)
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise _too_many(MAX_CONTAINERS, "lists and objects")
    if outside.count(b",") >= MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    if len(outside) > MAX_BARE_BYTES < len(outside) - outside.count(b" "):
        raise _too_many(MAX_BARE_BYTES, "bytes besides its strings and spaces")


def _without_escapes(body: bytes) -> bytes:
    """The body without escape sequences, so that each quote left begins or ends a string.

    A backslash outside a string is invalid JSON; the parser refuses it.
    """
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


def _too_many(most: int, what: str) -> ApiError:
    return ApiError(413, f"the body has more than {most} {what}, the most that is taken; send it as several requests")


MAX_BYTES = 1 << 26
"""The most bytes of one user's large bodies that wait to be read: 16 bodies of 4 MiB."""

TOO_MUCH = "your earlier requests still wait to be read; wait for their answers, then ask again"

NO_BOUND = sys.maxsize
"""No bound on one user's answers that wait: their texts were let in and are complete, so none is refused now."""


class LargeWork:
    """Lasts as long as the application that uses it."""

    def __init__(self) -> None:
        self.bodies = FairQueue(MAX_BYTES, TOO_MUCH, "bodies")  # sized in bytes
        self.answers = FairQueue(NO_BOUND, "", "answers")

    def close(self) -> None:
        """Ends the threads; who still waits is cancelled."""
        self.bodies.close()
        self.answers.close()
