"""Bodies of error answers, in the format of the API that a request's path belongs to: OpenAI's, or Anthropic's."""

from collections.abc import Mapping
from typing import TypeAlias

from starlette.responses import JSONResponse
from starlette.types import Scope

MESSAGES = "/v1/messages"
"""The path, and the paths below, where errors have Anthropic's format and statuses."""

OVERLOADED = 529
"""Anthropic's status for OpenAI's 503."""

NO_THREADS = "thread_unsupported_request"
"""Anthropic's code for a server that stores no conversations; their client then sends the whole one each time."""

FAILED_HERE = (
    "the node failed on this request; ask again, and if it persists tell its operator (the node's log says why)"
)
"""Message of status 500, which says nothing of the failure itself."""

CUT_OFF = "this node shut down before the answer was complete; ask another one, or this one when it is back"
"""Message of status 503 where the end of the server cut an answer off."""

TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


Body: TypeAlias = dict[str, dict[str, str | None]]


def error_body(message: str, *, type: str, param: str | None = None, code: str | None = None) -> Body:
    """Returns an error in the format of the OpenAI API."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def messages_error(status: int, body: Body) -> dict[str, object]:
    """Converts an error to the format of Anthropic's API."""
    code = body["error"]["code"]
    details = {"details": {"error_code": code}} if code == NO_THREADS else {}
    kind = TYPES.get(status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": body["error"]["message"], **details}}


def error_answer(scope: Scope, status: int, body: Body, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns an error answer in the format for the request's path. status, body: those of the OpenAI API."""
    if scope["path"] == MESSAGES or scope["path"].startswith(f"{MESSAGES}/"):
        return JSONResponse(messages_error(status, body), OVERLOADED if status == 503 else status, headers)
    return JSONResponse(body, status, headers)
