"""Completes the OpenAPI document that the framework writes: bodies, errors and streams."""

from typing import Any, TypeAlias

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from draft_node.http import requests
from draft_node.http.errors import declared
from draft_node.http.responses.requests import ResponsesRequest
from goodspeed.serving.web import OPEN_PATHS

Responses: TypeAlias = dict[int | str, dict[str, Any]]

READ = declared(401, 404, 405, 413, 415)
TAKE = declared(400, 401, 404, 405, 413, 415)
STREAMED: Responses = {200: {"description": "Whole, or with `stream` as events.", "content": {"text/event-stream": {}}}}
WORK = {**STREAMED, **TAKE, **declared(429, 503)}

REF = "#/components/schemas/{model}"
BODIES = (
    requests.CompletionRequest,
    requests.ChatRequest,
    ResponsesRequest,
    requests.TokenizeRequest,
    requests.DetokenizeRequest,
)


def takes(schema: type[BaseModel]) -> dict[str, Any]:
    """A route's body, as the document has it: we read it ourselves."""
    content = {"application/json": {"schema": {"$ref": REF.format(model=schema.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def complete(app: FastAPI, *, keyed: bool) -> None:
    """Adds the bodies' schemas to what the framework writes, and that keys are needed, where they are."""
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
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for path in OPEN_PATHS:
        for operation in document["paths"][path].values():
            operation["security"] = []
