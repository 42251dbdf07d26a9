"""The ASGI application around one service: routes, errors, limits and keys."""

import re
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from draft_node.config import DraftConfig
from draft_node.http.api import page
from draft_node.http.api.generate import routes_of_texts
from draft_node.http.api.node import Exposition, routes_of_node
from draft_node.http.api.tokenize import routes_of_tokens
from draft_node.http.ask.body import header_of_ignored
from draft_node.http.schema.errors import ApiError, ClientGone, of_service
from draft_node.service.service import Service
from goodspeed.errors import PromptError, ServiceError
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.errors import FAILED_HERE
from goodspeed.serving.web.guards import KeyCheck, with_headers


def create_app(service: Service, config: DraftConfig, exposition: Exposition, keys: Keys | None = None) -> ASGIApp:
    """Builds the application. exposition: returns the metrics, called at each scrape."""
    texts, tokens = routes_of_texts(service, config), routes_of_tokens(service, config)
    api = Starlette(
        routes=[*texts, *tokens, *routes_of_node(service, config, exposition)],
        exception_handlers={
            ApiError: _ours,
            ServiceError: _ours,
            PromptError: _ours,
            ClientGone: _gone,
            ClientDisconnect: _gone,
            HTTPException: _frameworks,
            Exception: _bugs,
        },
    )
    api.router.redirect_slashes = False
    guarded = with_headers(_with_or_without_slash(api), header_of_ignored)
    return guarded if keys is None else KeyCheck(guarded, keys, is_open=page.is_wanted)


def _with_or_without_slash(app: ASGIApp) -> ASGIApp:
    """Serves a path below /v1/ also with a slash at its end: a redirect would make many clients send GET."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API):
            scope["path"] = API + scope["path"].removeprefix(API).rstrip("/")
        await app(scope, receive, send)

    return served


API = "/v1/"


async def _ours(request: Request, error: Any) -> Response:
    told = error if isinstance(error, ApiError) else of_service(error)
    return told.response(request.scope)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the user is gone; never delivered


async def _bugs(request: Request, error: Exception) -> Response:
    return ApiError(500, FAILED_HERE).response(request.scope)  # the server gets the error, too, and logs it


async def _frameworks(request: Request, error: Any) -> Response:
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
        return f"{request.method} {path} is not served" + (
            f"; use {' or '.join(sorted(allowed.split(', ')))}" if allowed else ""
        )
    return ""
