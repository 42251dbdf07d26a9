"""Routes about the node itself: page, state, models and metrics."""

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse, Response

import goodspeed
from draft_node.config import DraftConfig
from draft_node.http.answer.choices import Json
from draft_node.http.answer.shape import now
from draft_node.http.api import page
from draft_node.http.ask.caller import names_of, served_name
from draft_node.http.schema.errors import ApiError
from draft_node.service.service import Service

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
GET  /openapi.json          requests in detail

docs/HTTP.md of the project lists the parameters of requests.
"""

Exposition = Callable[[], tuple[bytes, str]]
"""Returns metrics as text, and their content type."""


def routes_of_node(service: Service, config: DraftConfig, exposition: Exposition) -> APIRouter:
    routes, started = APIRouter(), now()

    @routes.get("/", response_class=Response)
    async def landing(request: Request) -> Response:
        """Names the node and its routes; a browser gets a page to chat with, without a key."""
        if page.is_wanted(request.scope):
            return page.page()
        return PlainTextResponse(LANDING.format(version=goodspeed.__version__, model=names_of(service, config)[0]))

    @routes.get("/health")
    async def health() -> Json:
        """Answers while the process lives."""
        return {"status": "ok"}

    @routes.get("/ready")
    async def ready() -> Json:
        """Answers 200 while the model is loaded, the verify node is connected, and texts are admitted."""
        return _ready(service)

    @routes.get("/version")
    async def version() -> Json:
        return {"version": goodspeed.__version__}

    @routes.get("/v1/models")
    async def models() -> Json:
        """Lists the one model by its names; `max_model_len` is 0 while the verify node, which knows it, is away."""
        return {"object": "list", "data": [_model(name, service, started) for name in names_of(service, config)]}

    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> Json:
        return _model(served_name(name, service, config), service, started)

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        content, content_type = exposition()
        return Response(content, headers={"Content-Type": content_type})

    _answer_head(routes)
    return routes


def _ready(service: Service) -> Json:
    """Returns the answer of `/ready`; ApiError with the reason if texts are not admitted."""
    if service.draining:
        raise ApiError(503, "not ready: shutting down", code="draining")
    if not service.is_ready:
        raise ApiError(503, f"not ready: {service.absence}", code="verify_away")
    target = service.target
    return {"status": "ready", "target": target.name, "target_fingerprint": target.fingerprint}


def _model(name: str, service: Service, started: int) -> Json:
    """Returns a name's entry; the target is null while the verify node is unreachable."""
    target = service.target
    return {
        "id": name,
        "object": "model",
        "created": started,
        "owned_by": "goodspeed",
        "max_model_len": service.context_len,
        "goodspeed": {
            "target": target.name,
            "target_fingerprint": target.fingerprint,
            "draft": service.draft_model,
            "draft_fingerprint": service.draft_fingerprint,
        },
    }


def _answer_head(routes: APIRouter) -> None:
    """Serves HEAD wherever GET is served: load balancers probe routes with HEAD.

    The server omits the body; the OpenAPI document omits the method.
    """
    for route in list(routes.routes):
        if isinstance(route, APIRoute):
            routes.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
