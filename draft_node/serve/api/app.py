"""The application: routes, errors, limits and keys around one service."""

from fastapi import FastAPI
from starlette.types import ASGIApp

import goodspeed
from draft_node.config import DraftConfig
from draft_node.serve.api import chat, completions, document, node, tokens
from draft_node.serve.api.large import LargeWork
from draft_node.serve.api.request import errors
from draft_node.serve.api.request.body import BodyLimit
from draft_node.serve.api.responses import route as responses
from draft_node.serve.service import Service
from goodspeed.node.web import KeyCheck, Keys


def create_app(
    service: Service,
    config: DraftConfig,
    exposition: node.Exposition,
    keys: Keys | None = None,
    work: LargeWork | None = None,
) -> ASGIApp:
    """exposition: the metrics as text with their content type, asked for at each scrape; work: the caller closes it."""
    api = create_api(service, config, exposition, keyed=keys is not None, work=work)
    guarded: ASGIApp = BodyLimit(api, config.http_max_body_bytes)
    return guarded if keys is None else KeyCheck(guarded, keys)


def create_api(
    service: Service,
    config: DraftConfig,
    exposition: node.Exposition,
    *,
    keyed: bool = False,
    work: LargeWork | None = None,
) -> FastAPI:
    """Builds the routes, without a limit on bodies or a check of keys; the document says whether keys are needed."""
    work = work or LargeWork()
    # Its pages for people load scripts from elsewhere; the document itself is enough.
    app = FastAPI(
        title="GoodSpeed draft node",
        version=goodspeed.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    errors.install(app)
    app.include_router(completions.router(service, config, work))
    app.include_router(chat.router(service, config, work))
    app.include_router(responses.router(service, config, work))
    app.include_router(tokens.router(service, config, work))
    app.include_router(node.router(service, config, exposition))
    document.complete(app, keyed=keyed)
    return app
