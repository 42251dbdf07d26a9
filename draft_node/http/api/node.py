"""Routes about the node itself: page, state, models and metrics."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

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

docs/HTTP.md of the project lists the parameters of requests.
"""

Exposition = Callable[[], tuple[bytes, str]]
"""Returns metrics as text, and their content type."""


def routes_of_node(service: Service, config: DraftConfig, exposition: Exposition) -> list[Route]:
    started = now()

    async def landing(request: Request) -> Response:
        """Names the node and its routes; a browser gets a page to chat with, without a key."""
        if page.is_wanted(request.scope):
            return page.page()
        return PlainTextResponse(LANDING.format(version=goodspeed.__version__, model=names_of(service, config)[0]))

    async def health(request: Request) -> Response:
        """Answers while the process lives."""
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        """Answers 200 while the model is loaded, the verify node is connected, and texts are admitted."""
        return JSONResponse(_ready(service))

    async def version(request: Request) -> Response:
        return JSONResponse({"version": goodspeed.__version__})

    async def models(request: Request) -> Response:
        """Lists the one model by its names; `max_model_len` is 0 while the verify node, which knows it, is away."""
        listed = [_model(name, service, started) for name in names_of(service, config)]
        return JSONResponse({"object": "list", "data": listed})

    async def model(request: Request) -> Response:
        return JSONResponse(_model(served_name(request.path_params["name"], service, config), service, started))

    async def metrics(request: Request) -> Response:
        content, content_type = exposition()
        return Response(content, headers={"Content-Type": content_type})

    handlers = {
        "/": landing,
        "/health": health,
        "/ready": ready,
        "/version": version,
        "/v1/models": models,
        "/v1/models/{name:path}": model,
        "/metrics": metrics,
    }
    return [Route(path, handler) for path, handler in handlers.items()]


def _ready(service: Service) -> Json:
    """Returns the answer of `/ready`; ApiError with the reason if texts are not admitted."""
    if service.draining:
        raise ApiError(503, "not ready: shutting down", code="draining")
    if not service.is_ready:
        raise ApiError(503, f"not ready: {service.absence}", code="verify_away")
    return {"status": "ready", "target": service.target_name, "target_fingerprint": service.target_fingerprint}


def _model(name: str, service: Service, started: int) -> Json:
    """Returns a name's entry; the target is null before the first one is known."""
    return {
        "id": name,
        "object": "model",
        "created": started,
        "owned_by": "goodspeed",
        "max_model_len": service.context_len,
        "goodspeed": {
            "target": service.target_name,
            "target_fingerprint": service.target_fingerprint,
            "draft": service.draft_model,
            "draft_fingerprint": service.draft_fingerprint,
        },
    }
