"""The ASGI application around one service: routes, errors, limits and keys, and the routes about the node itself."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

import goodspeed
from draft_node.config import DraftConfig
from draft_node.http import chat, completions, errors, page, prompts
from draft_node.http.answering import Endpoint, add_route, now
from draft_node.http.body import MAX_BODY_BYTES, REF, BodyLimit, LargeWork
from draft_node.http.errors import AWAY, READ, ApiError, declared
from draft_node.http.messages import shape as messages
from draft_node.http.messages.requests import CountRequest
from draft_node.http.names import names_of, served_name
from draft_node.http.requests import DetokenizeRequest, TokenizeRequest
from draft_node.http.responses import shape as responses
from draft_node.service.service import Service
from goodspeed.serving.web import OPEN_PATHS, KeyCheck, Keys
from goodspeed.serving.web.bodies import Model, ModelList, Models, Ready, Status, Version


def create_app(
    service: Service,
    config: DraftConfig,
    exposition: "Exposition",
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
    exposition: "Exposition",
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
    )
    errors.install(app)
    for endpoint in ENDPOINTS:
        add_route(app.router, endpoint, service, config, work)
    app.include_router(messages.route_of_counts(service, config, work))
    app.include_router(prompts.routes_of_tokens(service, config, work))
    app.include_router(_node_routes(service, config, exposition))
    _complete(app, keyed=keyed)
    return app


def _complete(app: FastAPI, *, keyed: bool) -> None:
    """Adds the request bodies' schemas, and the keys if required, to FastAPI's OpenAPI document."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            definitions = models_json_schema([(body, "validation") for body in BODIES], ref_template=REF)[1]["$defs"]
            document["components"]["schemas"].update(definitions)
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

LANDING = """\
GoodSpeed draft node {version}: the OpenAI API for the model {model!r}, and Anthropic's.
A browser shows a page to chat with here.

POST /v1/chat/completions   a conversation
POST /v1/completions        a text that goes on
POST /v1/responses          a conversation as items, without state
POST /v1/messages           a conversation by Anthropic's API
POST /v1/messages/count_tokens   its prompt's length
GET  /v1/models             the model; /v1/models/NAME likewise
POST /tokenize              a text as token ids
POST /detokenize            token ids as a text
GET  /health                200 while the process lives
GET  /ready                 200 while texts are admitted
GET  /version               the release
GET  /metrics               for Prometheus
GET  /openapi.json          all of it in detail

docs/HTTP.md of the project lists the parameters of requests.
"""

ENDPOINTS: tuple[Endpoint[Any], ...] = (completions.ENDPOINT, chat.ENDPOINT, responses.ENDPOINT, messages.ENDPOINT)

BODIES: tuple[type[BaseModel], ...] = (
    *(endpoint.body for endpoint in ENDPOINTS),
    CountRequest,
    TokenizeRequest,
    DetokenizeRequest,
)
"""Request bodies, which FastAPI does not know."""

Exposition = Callable[[], tuple[bytes, str]]
"""Returns metrics as text, and their content type."""


def _node_routes(service: Service, config: DraftConfig, exposition: Exposition) -> APIRouter:
    routes, started = APIRouter(), now()

    @routes.get("/", responses=READ, response_class=Response)
    async def landing(request: Request) -> Response:
        """Names the node and its routes; a browser gets a page to chat with, without a key."""
        if page.is_wanted(request.scope):
            return page.page()
        return PlainTextResponse(LANDING.format(version=goodspeed.__version__, model=names_of(service, config)[0]))

    @routes.get("/health", responses=READ)
    async def health() -> Status:
        """Answers while the process lives."""
        return Status(status="ok")

    @routes.get("/ready", responses={**READ, **declared(503)})
    async def ready() -> Ready:
        """Answers 200 while the model is loaded, the verify node is connected, and texts are admitted."""
        return _ready(service)

    @routes.get("/version", responses=READ)
    async def version() -> Version:
        return Version(version=goodspeed.__version__)

    @routes.get("/v1/models", responses=READ)
    async def models() -> ModelList:
        """Lists the one model by its names; `max_model_len` is 0 while the verify node, which knows it, is away."""
        return ModelList(object="list", data=[_model(name, service, started) for name in names_of(service, config)])

    @routes.get("/v1/models/{name:path}", responses=AWAY)
    async def model(name: str) -> Model:
        return _model(served_name(name, service, config), service, started)

    @routes.get("/metrics", responses=READ, response_class=Response)
    async def metrics() -> Response:
        content, content_type = exposition()
        return Response(content, headers={"Content-Type": content_type})

    _answer_head(routes)
    return routes


def _ready(service: Service) -> Ready:
    """Returns the answer of `/ready`; ApiError with the reason if texts are not admitted."""
    if service.draining:
        raise ApiError(503, "not ready: shutting down", code="draining")
    if not service.is_ready:
        raise ApiError(503, f"not ready: {service.absence}", code="verify_away")
    target = service.target
    return Ready(status="ready", target=target.name, target_fingerprint=target.fingerprint)


def _model(name: str, service: Service, started: int) -> Model:
    target = service.target
    return Model(
        id=name,
        object="model",
        created=started,
        owned_by="goodspeed",
        max_model_len=service.context_len,
        goodspeed=Models(
            target=target.name,
            target_fingerprint=target.fingerprint,
            draft=service.draft_model,
            draft_fingerprint=service.draft_fingerprint,
        ),
    )


def _answer_head(routes: APIRouter) -> None:
    """Serves HEAD wherever GET is served: load balancers probe routes with HEAD.

    The server omits the body; the OpenAPI document omits the method.
    """
    for route in list(routes.routes):
        if isinstance(route, APIRoute):
            routes.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
