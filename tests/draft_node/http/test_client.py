"""Users of the official client see errors of its own kinds."""

from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from goodspeed.errors import Busy, VerifyAway
from goodspeed.serving.web import Keys
from tests.draft_node.http.fake import Api


class Official:
    """The official client of an application in this process."""

    def __init__(self, api: Api, api_key: str = "none") -> None:
        http = TestClient(api.app, base_url="http://testserver/v1")
        self.openai = openai.OpenAI(base_url="http://testserver/v1", api_key=api_key, http_client=http, max_retries=0)

    def complete(self, **options):
        return self.openai.completions.create(**{"model": "goodspeed", "prompt": "hello", **options})


@pytest.mark.parametrize(
    ("body", "kind", "param", "code"),
    [
        ({"temperature": 3}, openai.BadRequestError, "temperature", "invalid_value"),
        ({"extra_body": {"guided_everything": 1}}, openai.BadRequestError, "guided_everything", "unknown_parameter"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model", "model_not_found"),
    ],
)
def test_what_is_refused(body: dict[str, Any], kind: type[openai.APIStatusError], param: str, code: str) -> None:
    with pytest.raises(kind) as error:
        Official(Api()).complete(**body)
    assert (error.value.type, error.value.param, error.value.code) == ("invalid_request_error", param, code)


def test_keys() -> None:
    api = Api(keys=Keys(["the-key-itself"]))
    with pytest.raises(openai.AuthenticationError):
        Official(api, "another-key").complete()
    assert Official(api, "the-key-itself").complete().choices[0].text


def test_too_busy() -> None:
    api = Api()
    api.fail(Busy("busy", "too many"))
    with pytest.raises(openai.RateLimitError) as error:
        Official(api).complete()
    assert error.value.response.headers["retry-after"] == "1"


def test_the_verify_node_is_away() -> None:
    api = Api()
    api.fail(VerifyAway("verify_away", "it cannot be reached"))
    with pytest.raises(openai.InternalServerError, match="cannot be reached"):
        Official(api).complete()


def test_a_stream_that_breaks_is_an_error() -> None:
    api = Api()
    api.fail(VerifyAway("verify_away", "it went away"), after=2)
    stream = Official(api).complete(stream=True)
    assert [next(stream).choices[0].text for _ in range(2)] == ["a", "b"]
    with pytest.raises(openai.APIError, match="it went away"):
        next(stream)


def test_models() -> None:
    client = Official(Api()).openai
    assert [model.id for model in client.models.list()] == ["goodspeed"]
    model: Any = client.models.retrieve("goodspeed")
    assert model.max_model_len == 1000
