"""Everything that can go wrong with a request, as OpenAI's clients read it: status, message, type, param, code.

One error leaves here for each of our own, of the framework's, and of the body's. Knows nothing about routes.
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from draft_node.api.schemas import NEUTRAL, UNKNOWN
from goodspeed.errors import Busy, PromptError, Refused, ServiceError
from goodspeed.web import error_body

RETRY_AFTER_S = {429: 1, 503: 5}

TYPES = {401: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable"}

USERS_FAULT = {"prompt", "vocabulary", "unsupported", "too_large", "malformed"}
"""Codes of refusals that the request brought upon itself."""

CHOICES = {
    "prompt": "must be a text, a list of texts, token ids, or a list of lists of token ids; none of them empty",
    "stop": "must be a text, or a list of at most 4; each of 1 to 256 characters",
    "messages": "must be at least one message, with a role and a content of text or text parts",
}
"""Said of parameters that may be one of several things, where the reason why it is none of them does not help."""


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(
            message, type=TYPES.get(status, "invalid_request_error"), param=param, code=code or _code(status)
        )

    def response(self, headers: dict[str, str] | None = None) -> Response:
        retry = RETRY_AFTER_S.get(self.status)
        return JSONResponse(
            self.body, self.status, {**(headers or {}), **({"Retry-After": str(retry)} if retry else {})}
        )


class ClientGone(Exception):
    """The user disconnected: nobody reads the answer."""


def _code(status: int) -> str:
    return {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}.get(
        status, "invalid_value"
    )


def of_service(error: ServiceError | PromptError) -> ApiError:
    match error:
        case Busy():
            return ApiError(429, error.what, code=error.code)
        case Refused() if error.code in USERS_FAULT:
            return ApiError(400, error.what, code=error.code)
        case ServiceError():
            return ApiError(503, error.what, code=error.code)
        case _:
            return ApiError(400, str(error), param="prompt", code="prompt")


def of_validation(error: ValidationError) -> ApiError:
    """The first of what is wrong with a body."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first['msg']}", code="invalid_json")
    param = _param(first["loc"])
    name = param.partition(".")[0]
    if first["type"] == UNKNOWN:
        param = f"{param}.{first['ctx']['name']}".lstrip(".")[:128]
        return ApiError(400, f"{param} is not known here; leave it out", param=param, code=UNKNOWN)
    if name in NEUTRAL:
        return ApiError(
            400,
            f"{name} is not supported, but for the value that changes nothing",
            param=name,
            code="unsupported_parameter",
        )
    if first["type"] == "missing":
        return ApiError(400, f"{param} is missing", param=param, code="missing_parameter")
    if param == "goodspeed.slo":
        return ApiError(400, "goodspeed.slo is reserved; leave it out", param=param, code="unsupported_parameter")
    if not name:
        return ApiError(400, "the body must be a JSON object", code="invalid_json")
    return ApiError(400, f"{param}: {CHOICES.get(name) or first['msg']}", param=param)


def _param(loc: Sequence[str | int]) -> str:
    """Dotted, without pydantic's own words for the branches of a union."""
    if loc and loc[0] in ("prompt", "stop"):
        return str(loc[0])
    parts = (str(part) for part in loc if isinstance(part, int) or re.fullmatch(r"\w{1,64}", part))
    return ".".join(part for part in parts if part != "str")


def install(app: FastAPI) -> None:
    """Has the application answer with these."""

    @app.exception_handler(ApiError)
    async def ours(request: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(ServiceError)
    @app.exception_handler(PromptError)
    async def services(request: Request, error: ServiceError | PromptError) -> Response:
        return of_service(error).response()

    @app.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=499)  # sent to nobody

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        what = f"there is nothing at {path}" if error.status_code == 404 else f"{request.method} {path}: {error.detail}"
        return ApiError(error.status_code, what).response(dict(error.headers or {}))


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every answer but 200 has."""

    error: ErrorDetail


REASONS = {
    400: "The request is wrong; `param` names what.",
    401: "No valid API key.",
    404: "No such route, or no such model.",
    405: "The route has another method.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    429: "Too many texts are waiting; see Retry-After.",
    503: "Draining, or the verify node is away; see Retry-After.",
}


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document."""
    return {
        status: {"model": ErrorBody, "description": REASONS[status]}
        | ({"headers": {"Retry-After": {"schema": {"type": "string"}}}} if status in RETRY_AFTER_S else {})
        for status in statuses
    }
