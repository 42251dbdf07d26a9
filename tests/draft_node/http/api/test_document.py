"""Requests made from the served OpenAPI document, to find what is not true of it, or a 5xx."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from goodspeed.serving.web import Keys
from tests.draft_node.http.fake import Api

KEY = "the-key-itself"

api = Api(keys=Keys([KEY]))
schema = schemathesis.openapi.from_asgi("/openapi.json", api.app, headers={"Authorization": f"Bearer {KEY}"})
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
def test_the_document_is_true(case) -> None:
    # Not everything that the document allows fits into a context or is a token of this tokenizer.
    case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=[positive_data_acceptance])
