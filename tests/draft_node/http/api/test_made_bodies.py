"""Requests made from the schemas of bodies, to find one that is not answered as it should be, or a 5xx."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from pydantic.json_schema import models_json_schema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from draft_node.http.api.generate import ENDPOINTS
from draft_node.http.schema.chat import DetokenizeRequest, TokenizeRequest
from draft_node.http.schema.messages import CountRequest
from tests.draft_node.http.fake import KEY, keyed

BODIES: dict[str, Any] = {endpoint.path: endpoint.body for endpoint in ENDPOINTS}
BODIES |= {"/v1/messages/count_tokens": CountRequest, "/tokenize": TokenizeRequest, "/detokenize": DetokenizeRequest}
READ = ("/health", "/ready", "/version", "/v1/models", "/v1/models/{name}", "/metrics")


def document() -> dict[str, Any]:
    bodies: list[Any] = [(body, "validation") for body in BODIES.values()]
    schemas = models_json_schema(bodies, ref_template="#/components/schemas/{model}")[1]["$defs"]
    answers = {"responses": {"default": {"description": "any"}}}
    name = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
    paths: dict[str, Any] = {path: {"get": {**answers, "parameters": name * ("{" in path)}} for path in READ}
    for path, body in BODIES.items():
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        paths[path] = {"post": {**answers, "requestBody": {"required": True, "content": content}}}
    info = {"title": "draft node", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


schema = schemathesis.openapi.from_dict(document())
schema.app = keyed().app
schema.config.checks.negative_data_rejection.expected_statuses = ["400", "401", "404", "405", "413", "415"]


@pytest.mark.thorough
@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_made_bodies(case) -> None:
    # Not everything that the schemas allow fits into a context or is a token of this tokenizer.
    case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=[positive_data_acceptance])
