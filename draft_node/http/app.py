"""The ASGI application around one service: routes, errors, limits and keys."""

import re
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

import goodspeed
from draft_node.config import DraftConfig
from draft_node.http.api import page
from draft_node.http.api.node import Exposition, routes_of_node
from draft_node.http.api.texts import ENDPOINTS, routes_of_texts
from draft_node.http.api.tokens import routes_of_tokens
from draft_node.http.ask.body import MAX_BODY_BYTES, REF, BodyLimit, LargeWork
from draft_node.http.schema.chat import DetokenizeRequest, TokenizeRequest
from draft_node.http.schema.errors import ERRORS, ApiError, ClientGone, of_service
from draft_node.http.schema.messages import CountRequest
from draft_node.service.service import Service
from goodspeed.errors import PromptError, ServiceError
from goodspeed.serving.web import OPEN_PATHS, KeyCheck, Keys
from goodspeed.serving.web.errors import FAILED_HERE


def create_app(
    service: Service,
    config: DraftConfig,
    exposition: Exposition,
    keys: Keys | None = None,
    work: LargeWork | None = None,
) -> ASGIApp:
    """Builds the application. exposition: returns the metrics, called at each scrape; work: closed by the caller."""
    api = create_api(service, config, exposition, keyed=keys is not None, work=work)
    guarded: ASGIApp = BodyLimit(_with_or_without_slash(api), MAX_BODY_BYTES)
    return guarded if keys is None else KeyCheck(guarded, keys, is_open=page.is_wanted)


def _with_or_without_slash(app: ASGIApp) -> ASGIApp:
    """Serves a path below /v1/ also with a slash at its end: a redirect would make many clients send GET."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API):
            scope["path"] = API + scope["path"].removeprefix(API).rstrip("/")
        await app(scope, receive, send)

    return served


def create_api(
    service: Service,
    config: DraftConfig,
    exposition: Exposition,
    *,
    keyed: bool = False,
    work: LargeWork | None = None,
) -> FastAPI:
    """Builds the routes, without body limit and key check. keyed: the OpenAPI document demands keys."""
    work = work or LargeWork()
    # FastAPI's documentation pages load scripts from other sites; the document itself is enough.
    app = FastAPI(
        title="GoodSpeed draft node",
        version=goodspeed.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS[False],
    )
    install(app)
    app.include_router(routes_of_texts(service, config, work))
    app.include_router(routes_of_tokens(service, config, work))
    app.include_router(routes_of_node(service, config, exposition))
    _complete(app, keyed=keyed)
    return app


def _complete(app: FastAPI, *, keyed: bool) -> None:
    """Adds the request bodies' schemas, and the keys if required, to FastAPI's OpenAPI document."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            definitions = models_json_schema([(body, "validation") for body in BODIES], ref_template=REF)[1]["$defs"]
            document["components"] = {"schemas": definitions}
            if keyed:
                _ask_for_keys(document)
        return written()

    app.openapi = openapi  # type: ignore[method-assign]


def _ask_for_keys(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    document["security"] = [{"key": []}, {"x-api-key": []}]
    for path in OPEN_PATHS:
        for operation in document["paths"][path].values():
            operation["security"] = []


API = "/v1/"

BODIES: tuple[type[BaseModel], ...] = (
    *(endpoint.body for endpoint in ENDPOINTS),
    CountRequest,
    TokenizeRequest,
    DetokenizeRequest,
)
"""Request bodies, which FastAPI does not know."""


def install(app: FastAPI) -> None:
    """Registers the exception handlers that answer in this format."""

    @app.exception_handler(ApiError)
    async def ours(request: Request, error: ApiError) -> Response:
        return error.response(request.scope)

    @app.exception_handler(ServiceError)
    @app.exception_handler(PromptError)
    async def services(request: Request, error: ServiceError | PromptError) -> Response:
        return of_service(error).response(request.scope)

    @app.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=499)  # the user is gone; never delivered

    @app.exception_handler(Exception)
    async def bugs(request: Request, error: Exception) -> Response:
        return ApiError(500, FAILED_HERE).response(request.scope)  # the server gets the error, too, and logs it

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        _, version, *rest = request.url.path.split("/")
        if error.status_code == 404 and version == "v1" and rest:
            # For proxies, 404 means a broken node, to which they send nothing for a while.
            found = _meant(request) or ": this node only generates texts; GET / lists its routes"
            what = f"/v1/{'/'.join(rest)[:64]} is not served{found}"
            return ApiError(400, what, code="not_served").response(request.scope)
        what = _route(error.status_code, request, headers.get("Allow", ""))
        return ApiError(error.status_code, what or error.detail).response(request.scope, headers)


def _meant(request: Request) -> str:
    """Returns the end of the message where a client's base URL has /v1 once too often or too rarely; else empty."""
    path = "/v1/" + re.sub("^/*(v1/+)*", "", request.url.path[:200])
    scope = {**request.scope, "path": path}
    if all(route.matches(scope)[0] is Match.NONE for route in request.app.routes):
        return ""
    return f", but {path} is: a base URL ends with /v1 for clients of OpenAI's API, and without it for Anthropic's"


def _route(status: int, request: Request, allowed: str) -> str:
    """Returns the message for 404 and 405; empty for other statuses."""
    path = request.url.path[:200]
    if status == 404:
        return f"there is nothing at {path}{_meant(request) or '; GET / lists the routes'}"
    if status == 405:
        return f"{request.method} {path} is not served" + (f"; use {allowed.replace(', ', ' or ')}" if allowed else "")
    return ""
