"""Bodies of error answers, in the format of the API that a request's path belongs to: OpenAI's, or Anthropic's."""

from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import Scope

MESSAGES = "/v1/messages"
"""The path, and the paths below, where errors have Anthropic's format and statuses."""

OVERLOADED = 529
"""Anthropic's status where OpenAI has 503."""

NO_THREADS = "thread_unsupported_request"
"""Anthropic's code where no conversation is kept; their client then sends all of it each time."""

TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def error_body(message: str, *, type: str, param: str | None = None, code: str | None = None) -> dict[str, object]:
    """Returns an error in the format of the OpenAI API."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def messages_error(status: int, message: str, code: str | None = None) -> dict[str, object]:
    """Returns an error in the format of Anthropic's API. status, code: those of the OpenAI API."""
    details = {"details": {"error_code": code}} if code == NO_THREADS else {}
    error = {"type": TYPES.get(status, "invalid_request_error"), "message": message, **details}
    return {"type": "error", "error": error}


def error_answer(
    scope: Scope,
    status: int,
    message: str,
    *,
    type: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Returns an error answer in the format for the request's path. status, type, param and code: OpenAI's."""
    if scope["path"] == MESSAGES or scope["path"].startswith(f"{MESSAGES}/"):
        return JSONResponse(messages_error(status, message, code), OVERLOADED if status == 503 else status, headers)
    return JSONResponse(error_body(message, type=type, param=param, code=code), status, headers)
