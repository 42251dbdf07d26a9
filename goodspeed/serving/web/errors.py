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
    401: ("invalid_request_error", "authentication_error"),
    404: ("invalid_request_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    500: ("server_error", "api_error"),
    503: ("service_unavailable", "overloaded_error"),
}
"""An error's type by status, in OpenAI's API and in Anthropic's; `invalid_request_error` for all other statuses."""

Body: TypeAlias = dict[str, dict[str, str | None]]


def error_body(status: int, message: str, code: str, param: str | None = None) -> Body:
    """Returns an error in the format of OpenAI's API."""
    return {"error": {"message": message, "type": _types(status)[0], "param": param, "code": code}}


def messages_error(status: int, message: str, code: str) -> dict[str, object]:
    """Returns an error in the format of Anthropic's API."""
    details = {"details": {"error_code": code}} if code == NO_THREADS else {}
    return {"type": "error", "error": {"type": _types(status)[1], "message": message, **details}}


def error_answer(
    scope: Scope,
    status: int,
    message: str,
    code: str,
    *,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Returns an error answer in the format for the request's path. status: that of OpenAI's API."""
    if scope["path"] == MESSAGES or scope["path"].startswith(f"{MESSAGES}/"):
        return JSONResponse(messages_error(status, message, code), OVERLOADED if status == 503 else status, headers)
    return JSONResponse(error_body(status, message, code, param), status, headers)


def _types(status: int) -> tuple[str, str]:
    return TYPES.get(status, ("invalid_request_error", "invalid_request_error"))
