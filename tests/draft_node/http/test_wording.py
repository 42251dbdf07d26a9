"""What a user reads: sentences that name the parameter, and say what is wrong and what to send instead."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.draft_node.http.fake import CONTEXT_LEN, Api, error_of
from tests.draft_node.http.test_parameters import REFUSED, REFUSED_CHAT, REFUSED_COMPLETION

ROLES = "'system', 'developer', 'user', 'assistant' or 'tool'"
PROMPT = "a string, a list of strings, a list of token ids, or a list of such lists; none of them empty"
STOP = "stop must be a string, or a list of at most 4; each has 1 to 256 characters"
UNSERVED: list[tuple[dict[str, Any], str]] = [
    ({"functions": [1]}, "send tools"),
    ({"function_call": {"name": "x"}}, "send tool_choice"),
    ({"guided_json": {"type": "object"}}, "send structured_outputs"),
    ({"store": True}, "no answer is kept here"),
    ({"suffix": "x"}, "leave it out"),
    ({"continue_final_message": True}, "leave it out"),
    ({"use_beam_search": True}, "leave it out"),
    ({"modalities": ["audio"]}, "leave it out"),
    ({"best_of": 2}, "send n for several choices"),
    ({"surprise": 1}, "leave it out"),
]


def user(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi", **fields}]


def part(**fields: Any) -> list[dict[str, Any]]:
    return user(content=[{"type": "text", "text": "hi", **fields}])


MESSAGES: list[tuple[Any, str]] = [
    (None, "messages must be a list"),
    ("hello", "messages must be a list"),
    ([], "messages must not be empty"),
    (["x"], "messages.0 must be an object"),
    (user(role="function"), f"messages.0.role must be {ROLES}"),
    (user(role="tool"), "messages.0.tool_call_id must be given: the id of the call that this answers"),
    (
        user(role="tool", tool_call_id="1"),
        "messages.0.role: tools are not supported, since this model's chat template knows none; leave the message out",
    ),
    (user(tool_call_id="1"), 'messages.0.tool_call_id is for messages of the role "tool"; leave it out'),
    (user(reasoning_content="x"), 'messages.0.reasoning_content is for messages of the role "assistant"; leave it out'),
    ([{"content": "x"}], "messages.0.role must be given"),
    (user(content=None), "messages.0.content must be given: a string or a list of text parts"),
    ([{"role": "user"}], "messages.0.content must be given: a string or a list of text parts"),
    (user(content=5), "messages.0.content must be a string or a list of text parts"),
    (user(content=[]), "messages.0.content must not be empty"),
    (user(content=["x"]), "messages.0.content.0 must be an object"),
    (part(type="image_url"), "messages.0.content.0.type must be 'text'"),
    (part(text=5), "messages.0.content.0.text must be a string"),
    (part(cached=[1]), "messages.0.content.0.cached is not a parameter that is served here; leave it out"),
    (user(tool_calls=[{}]), "messages.0.tool_calls.0.id must be given"),
    (
        user(tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        'messages.0.tool_calls is for messages of the role "assistant"; leave it out',
    ),
    (user(refusal="no"), "messages.0.refusal is not a parameter that is served here; leave it out"),
    (user(name="x" * 513), "messages.0.name must have at most 512 characters"),
    (user() * 1025, "messages must have at most 1024 members"),
]
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt-5"}, "the model 'gpt-5' is not served here; ask for 'goodspeed'"),
    ({"model": 5}, "model must be a string"),
    ({"temperature": "1"}, "temperature must be a number"),
    ({"temperature": 2.5}, "temperature must be at most 2"),
    ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
    ({"max_completion_tokens": 0}, "max_completion_tokens must be at least 1"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must not be more than max_tokens"),
    ({"stream": "yes"}, "stream must be true or false"),
    ({"stream_options": {}}, "stream_options needs stream: true; send both, or neither"),
    ({"stream": True, "stream_options": 5}, "stream_options must be an object"),
    ({"stop": 5}, STOP),
    ({"stop": ""}, "stop must not be empty"),
    ({"stop": ["x"] * 5}, "stop must have at most 4 members"),
    ({"n": 17}, "n must be at most 16"),
    ({"goodspeed": {"slo": {}}}, "goodspeed.slo must have ttft_ms, tpot_ms or both"),
    ({"goodspeed": {"slo": 5}}, "goodspeed.slo must be a tier's name, or an object with ttft_ms, tpot_ms or both"),
    ({"goodspeed": {"mark_accepted": True}}, "goodspeed.mark_accepted needs stream: true; send both, or neither"),
]
PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, f"prompt must be {PROMPT}"),
    ({"prompt": ["x"] * 65}, "prompt holds 65 prompts; send at most 64 in one request"),
    ({"prompt": [256]}, "prompt: 256 is no token id; they go from 0 to 255"),
    (
        {"prompt": "x" * 10, "max_tokens": CONTEXT_LEN},
        "max_tokens must be at most 990: the context has 1000 tokens, and the prompt takes 10 of them",
    ),
    (
        {"prompt": "x" * 1500},
        "prompt must be shorter: the context has 1000 tokens, and the prompt takes 1500 of them",
    ),
    ({"max_tokens": 0}, "max_tokens must be at least 1; 0 is for echo: true alone"),
]


@pytest.fixture(scope="module")
def api() -> Api:
    return Api()


def message_of(answer: Any) -> str:
    return str(error_of(answer, answer.status_code)["message"])


@pytest.mark.parametrize(("body", "advice"), UNSERVED)
def test_what_is_not_served_is_named_with_advice(api: Api, body: dict[str, Any], advice: str) -> None:
    name = next(iter(body))
    for ask in (api.chat, api.complete):
        error = error_of(ask(**body))
        assert (error["message"], error["param"]) == (f"{name} is not a parameter that is served here; {advice}", name)
        assert error["code"] == "unknown_parameter"


@pytest.mark.parametrize(("messages", "expected"), MESSAGES)
def test_messages(api: Api, messages: object, expected: str) -> None:
    assert message_of(api.chat(messages=messages)).startswith(expected)


@pytest.mark.parametrize(("body", "expected"), OTHERS)
@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_what_both_take(api: Api, ask: Any, body: dict[str, Any], expected: str) -> None:
    assert message_of(ask(api, **body)) == expected


@pytest.mark.parametrize(("body", "expected"), PROMPTS)
def test_prompts(api: Api, body: dict[str, Any], expected: str) -> None:
    assert message_of(api.complete(**body)) == expected


def test_messages_that_are_too_long_are_called_that(api: Api) -> None:
    error = error_of(api.chat(messages=user(content="x" * 1500)))
    assert error["param"] == "messages"
    assert error["message"].startswith("messages must be shorter: the context has 1000 tokens")


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v2", None, "there is nothing at /v2; GET / lists what there is"),
        ("GET", "/v1/completions", None, "GET /v1/completions is not served; use POST"),
        ("GET", "/v1/models/gpt-5", None, "the model 'gpt-5' is not served here; ask for 'goodspeed'"),
        ("POST", "/tokenize", {"prompt": 5}, "prompt must be a string"),
        ("POST", "/tokenize", {}, "send either prompt or messages"),
        ("POST", "/tokenize", {"prompt": "a", "surprise": 1}, "surprise is not a parameter"),
        ("POST", "/detokenize", {}, "tokens must be given"),
        ("POST", "/detokenize", {"tokens": None}, "tokens must be a list"),
        ("POST", "/detokenize", {"tokens": [1.5]}, "tokens.0 must be a whole number"),
        ("POST", "/detokenize", {"tokens": [999]}, "tokens: 999 is no token id; they go from 0 to 255"),
        ("POST", "/v1/completions", [1], "the body must be a JSON object"),
    ],
)
def test_other_routes(api: Api, method: str, path: str, body: object, expected: str) -> None:
    answer = api.client.request(method, path, json=body)
    assert message_of(answer).startswith(expected)


def test_no_sentence_is_that_of_a_library(api: Api) -> None:
    """Each names its parameter, and none speaks of inputs, literals, instances or values that change nothing."""
    refused: list[tuple[Callable[..., Any], dict[str, Any], str]]
    refused = [(Api.complete, *one) for one in [*REFUSED, *REFUSED_COMPLETION]]
    refused += [(Api.chat, *one) for one in [*REFUSED, *REFUSED_CHAT]]
    for ask, body, param in refused:
        message = message_of(ask(api, **body))
        assert not re.search(r"(?i)\binput\b|literal|instance|validat|changes nothing|pydantic", message), message
        assert param.split(".")[0] in message or "chat template" in message, message
        assert len(message) < 200
