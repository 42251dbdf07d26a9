"""Users of the official client see errors of its own kinds."""

from typing import Any

import openai
import pytest

from goodspeed.errors import Busy, VerifyAway
from goodspeed.serving.web import Keys
from tests.draft_node.http.fake import Api, official


def complete(api: Api, api_key: str = "none", **options: Any) -> Any:
    return official(api, api_key).completions.create(**{"model": "goodspeed", "prompt": "hello", **options})


@pytest.mark.parametrize(
    ("body", "kind", "param", "code"),
    [
        ({"temperature": 3}, openai.BadRequestError, "temperature", "invalid_value"),
        ({"extra_body": {"guided_everything": 1}}, openai.BadRequestError, "guided_everything", "unknown_parameter"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model", "model_not_found"),
    ],
)
def test_what_is_refused(
    api: Api, body: dict[str, Any], kind: type[openai.APIStatusError], param: str, code: str
) -> None:
    with pytest.raises(kind) as error:
        complete(api, **body)
    assert (error.value.type, error.value.param, error.value.code) == ("invalid_request_error", param, code)


def test_keys() -> None:
    api = Api(keys=Keys(["the-key-itself"]))
    with pytest.raises(openai.AuthenticationError):
        complete(api, "another-key")
    assert complete(api, "the-key-itself").choices[0].text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Busy("busy", "too many"), openai.RateLimitError),
        (VerifyAway("verify_away", "it cannot be reached"), openai.InternalServerError),
    ],
)
def test_what_fails(api: Api, error: Exception, kind: type[openai.APIStatusError]) -> None:
    api.fail(error)
    with pytest.raises(kind, match=str(error)) as raised:
        complete(api)
    assert raised.value.response.headers["retry-after"]


def test_a_stream_that_breaks_is_an_error(api: Api) -> None:
    api.fail(VerifyAway("verify_away", "it went away"), after=2)
    stream = complete(api, stream=True)
    assert [next(stream).choices[0].text for _ in range(2)] == ["a", "b"]
    with pytest.raises(openai.APIError, match="it went away"):
        next(stream)


def test_models(api: Api) -> None:
    client = official(api)
    assert [model.id for model in client.models.list()] == ["big-model"]
    model: Any = client.models.retrieve("goodspeed")
    assert model.max_model_len == 1000
