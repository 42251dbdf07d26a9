"""Reads request bodies: limits their size, counts their elements, and validates them by schema."""

from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Scope

from draft_node.http.schema.errors import ApiError, of_validation, wrong
from draft_node.http.schema.strict import Ignored, Strict
from draft_node.service.fair_queue import FairQueue
from goodspeed.serving.web.guards import user_of

M = TypeVar("M", bound=Strict)

MAX_BODY_BYTES = 4 << 20
"""Largest request body."""

SLO_HEADERS = ("x-slo-ttft-ms", "x-slo-tpot-ms")
"""Headers that request a service level at other servers; here the body does."""

IGNORED_MEMBERS = "goodspeed.ignored"
"""Key in the request's ASGI state for the names of ignored members."""


def ignored_of(scope: Scope) -> Ignored:
    """Returns the set of a request's ignored members; names may be added until the answer begins."""
    names: Ignored = scope.setdefault("state", {}).setdefault(IGNORED_MEMBERS, Ignored())
    return names


def header_of_ignored(scope: Scope) -> dict[str, str]:
    """Returns the header with the names of a request's ignored members; none if there are no such members."""
    names = ignored_of(scope)
    return {"X-GoodSpeed-Ignored": ", ".join(sorted(names))} if names else {}


async def read(request: Request, schema: type[M], bodies: FairQueue) -> M:
    """Parses the body by `schema`; ApiError with the reason if it is invalid, compressed or too large."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "compressed bodies are not supported; send it as it is", code="unsupported_encoding")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the body must be JSON, with Content-Type: application/json")
    for name in SLO_HEADERS:
        if name in request.headers:
            raise wrong(f"{name} is not a supported header; send goodspeed.slo in the body", "unknown_parameter")
    body, ignored = await _whole(request), ignored_of(request.scope)
    request.state.num_bytes = len(body)
    ignored.takes_unknown = bool(schema.announcing and request.headers.get(schema.announcing))
    return await bodies.run(user_of(request.scope), len(body), lambda: validated(schema, body, ignored))


async def _whole(request: Request) -> bytes:
    """Reads a body of up to MAX_BODY_BYTES.

    The connection stays open after a refusal: the server reads and drops the rest of the body. Closing would reset the
    connection, and many clients would never see the answer.
    """
    length, body = request.headers.get("content-length", "0"), bytearray()
    _check_size(int(length) if length.isdecimal() else 0)
    async for piece in request.stream():
        body += piece
        _check_size(len(body))
    return bytes(body)


def _check_size(num_bytes: int) -> None:
    if num_bytes > MAX_BODY_BYTES:
        raise ApiError(413, f"the body is larger than the limit of {MAX_BODY_BYTES} bytes; shorten it")


def validated(schema: type[M], body: bytes, ignored: Ignored | None = None) -> M:
    """Parses a body by `schema`; ApiError if invalid. ignored: receives the names of ignored members."""
    check_elements(body)
    if not body:
        raise ApiError(400, "the body is empty; send a JSON object", code="invalid_json")
    try:
        return schema.model_validate_json(body, context=ignored)
    except ValidationError as error:
        raise of_validation(error) from None


MAX_CONTAINERS = 1 << 16
"""Most lists and objects in a body. A turn of an agent has about ten, and 4 MiB have some thousand turns."""

MAX_STRINGS = 1 << 18
"""Most strings, including names of members. A turn of an agent has about 40.

At these bounds a body of 4,500 turns takes 0.6 s from bytes to a chat, and the costliest 1 s, on one core of 2 GHz; the
event loop waits 0.1 and 0.2 s at the longest.
"""

MAX_VALUES = 1 << 18
"""Most values separated by commas, such as numbers: 64 prompts of 4,096 token ids."""

MAX_BARE_BYTES = 2 << 20
"""Most bytes outside of strings and spaces: eight per value. Numbers of 19 or more digits are slow to parse."""


def check_elements(*texts: bytes) -> None:
    """Raises ApiError 413 if JSON texts together exceed the limits above; does not check whether they are valid JSON.

    texts: a body, or the JSON inside of its strings.
    """
    num_strings = 0
    outsides = list[bytes]()
    for text in texts:
        pieces = _without_escapes(text).split(b'"', 2 * MAX_STRINGS + 1)  # alternately outside and inside of strings
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
    """Removes escape sequences, so that each remaining quote begins or ends a string.

    A backslash outside a string is invalid JSON; the parser refuses it.
    """
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


def _too_many(most: int, what: str) -> ApiError:
    return ApiError(413, f"the body has more than {most} {what}, which is the limit; split it into several requests")
