"""What a user reads: sentences that name the parameter, and say what is wrong and what to send instead."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from draft_node.http.errors import GUIDED, UNSUPPORTED
from draft_node.http.requests import NEUTRAL
from tests.draft_node.http.fake import CONTEXT_LEN, Api, error_of
from tests.draft_node.http.test_parameters import REFUSED, REFUSED_CHAT, REFUSED_COMPLETION

ROLES = "system, developer, user, assistant or tool"
PROMPT = "a string, a list of strings, a list of token ids, or a list of such lists; none of them may be empty"
STOP = "stop must be a string, or a list of at most 4; each has 1 to 256 characters"
UNSUPPORTED_VALUES: dict[str, tuple[Any, str]] = {
    "functions": ([1], "are not supported; leave them out"),
    "function_call": ({"name": "x"}, 'must be "none" or "auto"; tools have tool_choice'),
    **{f"guided_{kind}": ("a", f'is not supported; send structured_outputs: {{"{kind}": ...}}') for kind in GUIDED},
    "guided_decoding_backend": ("x", "is not supported; leave it out"),
    "guided_whitespace_pattern": ("x", "is not supported; leave it out"),
    "modalities": (["audio"], 'must be ["text"]: nothing but text is written'),
    "audio": ({}, "is not supported; leave it out"),
    "moderation": ({}, "is not supported; leave it out"),
    "prompt_cache_retention": ("24h", "is not supported; leave it out"),
    "prompt_cache_options": ({}, "are not supported; leave them out"),
    "web_search_options": ({}, "are not supported; leave them out"),
    "continue_final_message": (True, "must be false, or left out"),
    "include_stop_str_in_output": (True, "must be false, or left out"),
    "skip_special_tokens": (False, "must be true, or left out"),
    "spaces_between_special_tokens": (False, "must be true, or left out"),
    "use_beam_search": (True, "must be false, or left out"),
    "store": (True, "must be false, or left out: no answer is kept"),
    "add_generation_prompt": (False, "must be true, or left out"),
}
IN_COMPLETIONS: dict[str, tuple[Any, str]] = {
    "best_of": (2, "must be 1, or left out; n asks for several choices"),
    "suffix": ("x", "is not supported; leave it out"),
}


def user(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi", **fields}]


def part(**fields: Any) -> list[dict[str, Any]]:
    return user(content=[{"type": "text", "text": "hi", **fields}])


MESSAGES: list[tuple[Any, str]] = [
    (None, "messages must not be null; send a list of messages, each with a role and a content"),
    ("hello", "messages must be a list of messages, each with a role and a content"),
    ([], "messages must not be an empty list; send at least one message"),
    (["x"], "messages.0 must be an object with a role and a content"),
    ([None], "messages.0 must be an object with a role and a content"),
    (user(role="function"), f"messages.0.role: 'function' is not a role that is served; use {ROLES}"),
    (user(role="tool"), "messages.0.tool_call_id must be given: the id of the call that this answers"),
    (
        user(role="tool", tool_call_id="1"),
        "messages.0.role: tools are not supported, since this model's chat template knows none; leave the message out",
    ),
    (user(tool_call_id="1"), 'messages.0.tool_call_id is for messages of the role "tool"; leave it out'),
    (user(reasoning_content="x"), 'messages.0.reasoning_content is for messages of the role "assistant"; leave it out'),
    (user(role="é" * 99), f"messages.0.role: '{chr(92)}xe9"),  # escaped, and cut
    (user(role=None), f"messages.0.role must not be null; send {ROLES}"),
    (user(role=5), f"messages.0.role must be {ROLES}"),
    ([{"content": "x"}], f"messages.0.role must be given: {ROLES}"),
    (user(content=None), "messages.0.content must not be null; send a string or a list of text parts"),
    ([{"role": "user"}], "messages.0.content must be given: a string or a list of text parts"),
    (user(content=5), "messages.0.content must be a string or a list of text parts"),
    (user(content=[]), "messages.0.content must not be an empty list; send a string, or at least one text part"),
    (user(content=["x"]), 'messages.0.content.0 must be an object like {"type": "text", "text": "..."}'),
    (
        part(type="image_url"),
        "messages.0.content.0: 'image_url' parts are not served; only text parts are served",
    ),
    (part(type=None), 'messages.0.content.0.type must not be null; send "text"'),
    (part(text=None), "messages.0.content.0.text must not be null; send a string"),
    (part(text=5), "messages.0.content.0.text must be a string"),
    (part(cached={}), "'messages.0.content.0.cached' is not a known parameter; leave it out"),
    (user(tool_calls=[{}]), "messages.0.tool_calls.0.id must be given: a string"),
    (user(tool_calls=[1]), 'messages.0.tool_calls.0 must be an object like {"id": "...", "type": "function"'),
    (
        user(tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        'messages.0.tool_calls is for messages of the role "assistant"; leave it out',
    ),
    ([{"role": "assistant", "content": None, "tool_calls": []}], "messages.0.content must not be null; send a string"),
    (user(annotations=[{}]), "messages.0.annotations are not supported; leave them out"),
    (user(function_call={}), "messages.0.function_call is not supported; leave it out"),
    (user(refusal="no"), "messages.0.refusal is not supported; leave it out"),
    (user(audio={}), "messages.0.audio is not supported; leave it out"),
    (user(name=5), "messages.0.name must be a string"),
    (user(name="x" * 513), "messages.0.name must have at most 512 characters"),
    (user(weight=1), "'messages.0.weight' is not a known parameter; leave it out"),
    (user() * 1025, "messages must have at most 1024 members"),
]
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt-5"}, "the model 'gpt-5' is not served here; ask for 'goodspeed'"),
    ({"model": 5}, "model must be a string"),
    ({"temperature": "1"}, "temperature must be a number"),
    ({"temperature": 2.5}, "temperature must be at most 2"),
    ({"top_p": 0}, "top_p must be at least 0.000001"),
    ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
    ({"max_completion_tokens": 0}, "max_completion_tokens must be at least 1"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must not be more than max_tokens"),
    ({"stream": "yes"}, "stream must be true or false"),
    ({"stream_options": {}}, "stream_options needs stream: true; send both, or neither"),
    ({"stream": True, "stream_options": 5}, "stream_options must be an object"),
    ({"stop": ""}, STOP),
    ({"stop": 5}, STOP),
    ({"stop": ["x"] * 5}, STOP),
    ({"stop": "x" * 257}, "stop must have at most 256 characters"),
    ({"n": 17}, "n must be at most 16"),
    ({"user": 5}, "user must be a string"),
    (
        {"goodspeed": {"slo": {}}},
        "goodspeed.slo must be a tier's name, or an object with ttft_ms, tpot_ms or both, each from 0.1 to 3600000",
    ),
    ({"goodspeed": {"mark_accepted": True}}, "goodspeed.mark_accepted needs stream: true; send both, or neither"),
    ({"top_a": 1}, "'top_a' is not a known parameter; leave it out"),
]
PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, f"prompt must not be null; send {PROMPT}"),
    ({"prompt": []}, f"prompt must be {PROMPT}"),
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


def test_every_parameter_that_is_not_supported_has_its_sentence() -> None:
    assert NEUTRAL == UNSUPPORTED.keys() == UNSUPPORTED_VALUES.keys() | IN_COMPLETIONS.keys()


@pytest.mark.parametrize("name", UNSUPPORTED_VALUES)
def test_not_supported_in_chats(api: Api, name: str) -> None:
    value, expected = UNSUPPORTED_VALUES[name]
    error = error_of(api.chat(**{name: value}))
    assert (error["message"], error["param"]) == (f"{name} {expected}", name)
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("name", IN_COMPLETIONS)
def test_not_supported_in_completions(api: Api, name: str) -> None:
    value, expected = IN_COMPLETIONS[name]
    assert message_of(api.complete(**{name: value})) == f"{name} {expected}"


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
        ("POST", "/tokenize", {"prompt": "a", "add_special_tokens": False}, "add_special_tokens must be true, or"),
        ("POST", "/detokenize", {}, "tokens must be given: a list of token ids"),
        ("POST", "/detokenize", {"tokens": None}, "tokens must not be null; send a list of token ids"),
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
