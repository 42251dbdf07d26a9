"""Each refusal of a request names its parameter, and says in our own words what to send instead."""

import re
from typing import Any

import pytest

from tests.draft_node.http.ask.test_tools import call
from tests.draft_node.http.fake import CONTEXT_LEN, USER, Api, body_of, error_of

Rows = list[tuple[dict[str, Any], str]]

UNSERVED = {
    "functions": ([1], "send tools"),
    "function_call": ({"name": "x"}, "send tool_choice"),
    "guided_json": ({"type": "object"}, "send structured_outputs"),
    "grammar": ('root ::= "a"', "send structured_outputs"),
    "json_schema": ({"type": "object"}, "send response_format"),
    "best_of": (2, "send n for several choices"),
    "modalities": (["audio"], "leave it out"),
    "slo": ("urgent", "send goodspeed.slo"),
    **dict.fromkeys(("suffix", "use_beam_search", "surprise"), (1, "leave it out")),
    **dict.fromkeys(("bad_words", "cache_salt", "documents", "n_predict", "thinking_budget"), (1, "leave it out")),
    "max_token": (5, "did you mean max_tokens?"),
    "maxTokens": (5, "did you mean max_tokens?"),
    "temprature": (0.5, "did you mean temperature?"),
    f"{'max_token':_<64}": (5, "leave it out"),
    **dict.fromkeys(("audio", "prompt_logprobs"), (1, "leave it out")),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), (False, "leave it out")),
    "include_reasoning": (False, "leave it out"),
    "do_sample": (False, "send temperature 0"),
}
"""Members that would change the answer, and advice."""

NUMBERS: dict[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0.01, 100),
    "min_p": (0, 1),
    "temperature": (0, 2),
    "top_p": (0.000001, 1),
}
"""Numbers with the least and the most that they may be."""

BOTH: Rows = [
    *(
        ({name: least - 0.001}, f"{name} must be at least {least:f}".rstrip("0").rstrip("."))
        for name, (least, _) in NUMBERS.items()
    ),
    *(({name: most + 0.001}, f"{name} must be at most {most}") for name, (_, most) in NUMBERS.items()),
    *(({name: wrong}, f"{name} must be a number") for name in NUMBERS for wrong in ("1", True)),
    ({"goodspeed": {"max_draft": 0}}, "goodspeed.max_draft must be at least 1"),
    ({"goodspeed": {"slo": "fast"}}, "goodspeed.slo: there is no tier 'fast'; there are none here; leave it out"),
    ({"goodspeed": {"slo": {}}}, "goodspeed.slo must have ttft_ms, tpot_ms or both"),
    ({"goodspeed": {"slo": {"ttft_ms": 9, "tpot_window": 9}}}, "goodspeed.slo must have tpot_ms, because"),
    ({"goodspeed": {"slo": 5}}, "goodspeed.slo must be a tier's name, or an object with ttft_ms, tpot_ms or both"),
    ({"goodspeed": {"slo": {"tier": "x"}}}, "goodspeed.slo.tier is not a supported parameter; leave it out"),
    ({"goodspeed": {"slo": {"tpot_ms": 0}}}, "goodspeed.slo.tpot_ms must be at least 0.1"),
    ({"goodspeed": {"speed": 1}}, "goodspeed.speed is not a supported parameter; leave it out"),
    ({"logit_bias": {"256": -100}}, "logit_bias: 256 is no token id; they go from 0 to 255"),
    *(
        ({"logit_bias": {name: 1, "5": 1}}, 'logit_bias must have token ids as its names, like {"50256": -100}')
        for name in ("05", "-1", "word")
    ),
    ({"logit_bias": [1]}, "logit_bias must be an object"),
    ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias must have at most 1024 members"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5 must be at most 100"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens and max_completion_tokens differ; send one of them"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must not be more than max_tokens"),
    ({"max_tokens": 1 << 63}, "max_tokens must be at most 9223372036854775807"),
    ({"model": "gpt-5"}, "the model 'gpt-5' is not served here; ask for 'big-model'"),
    ({"n": 17}, "n must be at most 16"),
    ({"priority": 1}, "priority is not a supported parameter; leave it out"),
    ({"return_token_ids": 1}, "return_token_ids must be true or false"),
    ({"seed": 1 << 63}, "seed must be at most 9223372036854775807"),
    ({"stop": ""}, "stop must not be empty"),
    ({"stop": 5}, "stop must be a string, or a list of at most 4; each has 1 to 256 characters"),
    ({"stop": ["x"] * 5}, "stop must have at most 4 members"),
    ({"stop": "x" * 257}, "stop must have at most 256 characters"),
    ({"stop_token_ids": [3, 300]}, "stop_token_ids: 300 is no token id; they go from 0 to 255"),
    ({"stop_token_ids": [3, -1]}, "stop_token_ids: -1 is no token id; they go from 0 to 255"),
    ({"stop_token_ids": [1] * 65}, "stop_token_ids must have at most 64 members"),
    ({"stream": "yes"}, "stream must be true or false"),
    ({"stream_options": {}}, "stream_options needs stream: true; send both, or neither"),
    ({"stream": True, "stream_options": {"more": 1}}, "stream_options.more is not a supported parameter"),
    ({"top_k": -2}, "top_k must be at least -1"),
]
PROMPT = "prompt must be a string, a list of strings, a list of token ids, or a list of such lists; none of them empty"
TOO_LONG = "This model's maximum context length is 1000 tokens, but the "
COMPLETIONS: Rows = [
    ({"logprobs": 21}, "logprobs must be at most 20"),
    ({"max_tokens": 0}, "max_tokens must be at least 1; 0 is for echo: true alone"),
    ({"echo": True, "max_tokens": 0, "min_tokens": 1}, "min_tokens must not be more than max_tokens, which is 0"),
    ({"prompt": ""}, "the prompt is empty; give at least one character"),
    ({"prompt": []}, "prompt must not be empty"),
    *(({"prompt": wrong}, PROMPT) for wrong in (None, ["a", 1], [True])),
    ({"prompt": [[]]}, "prompt must"),
    ({"prompt": [256]}, "prompt: 256 is no token id; they go from 0 to 255"),
    ({"prompt": [[5], [-1, 5]]}, "prompt: -1 is no token id; they go from 0 to 255"),
    ({"min_tokens": 20}, "min_tokens must not be more than max_tokens, whose default is 16; send it, too"),
    ({"enable_thinking": False}, "enable_thinking is not a supported parameter; leave it out"),
    *(
        ({"prompt": prompt, "add_special_tokens": False}, "add_special_tokens is not a supported parameter; send the")
        for prompt in ("x", ["x"])
    ),
    ({"prompt": ["x"] * 65}, "prompt holds 65 prompts; send at most 64 in one request"),
    ({"prompt": "x" * 1500}, f"{TOO_LONG}prompt has 1500 tokens: reduce the length of the prompt, and leave room"),
    ({"prompt": "x" * CONTEXT_LEN}, f"{TOO_LONG}prompt has 1000 tokens: reduce"),
    ({"prompt": "x" * 3001}, f"{TOO_LONG}prompt has 1501 tokens at least: reduce"),
    ({"tools": [1]}, "tools is not a supported parameter; leave it out"),
]


def user(**fields: Any) -> dict[str, Any]:
    return {"messages": [{**USER, **fields}]}


def part(**fields: Any) -> dict[str, Any]:
    return user(content=[{"type": "text", "text": "hi", **fields}])


CHATS: Rows = [
    ({"max_tokens": 0}, "max_tokens must be at least 1"),
    *(({"messages": wrong}, "messages must be a list") for wrong in (None, "hello")),
    ({"messages": []}, "messages must not be empty"),
    ({"messages": user()["messages"] * 16_385}, "messages must have at most 16384 members"),
    (user(content="no template"), "this tokenizer has no chat template; send a plain prompt"),
    (user(content="x" * 1500), f"{TOO_LONG}messages have 1506 tokens: reduce the length of the messages, and leave"),
    (user(content=None), "messages.0.content must be given: a string or a list of text parts"),
    ({"messages": [{"role": "user"}]}, "messages.0.content must be given: a string or a list of text parts"),
    (user(content=5), "messages.0.content must be a string or a list of text parts"),
    (user(content=[]), "messages.0.content must not be empty"),
    (part(cached=[1]), "messages.0.content.0.cached is not a supported parameter; leave it out"),
    (user(content=[{"type": "text", "text": ""}] * 4097), "messages.0.content must have at most 4096 members"),
    (part(type="image_url"), "messages must not end with a question about an image, which this model cannot read"),
    (part(type="input_audio"), "messages must not end with a question about a recording"),
    (part(type="video_url"), "messages.0.content.0 has the type 'video_url', which is not supported; send one of"),
    (user(name="x" * 513), "messages.0.name must have at most 512 characters"),
    (user(reasoning="x"), 'messages.0.reasoning is for messages of the role "assistant"; leave it out'),
    (user(refusal="no"), 'messages.0.refusal is for messages of the role "assistant"; leave it out'),
    (user(function_call={"name": "f"}), "messages.0.function_call is not a supported parameter; send tool_calls"),
    (user(role="tool", tool_call_id="1"), "messages.0.role: tools are not supported, since this model has no"),
    (user(role="function"), "messages.0.role must be 'system', 'developer', 'user', 'assistant' or 'tool'"),
    ({"messages": [{"content": "x"}]}, "messages.0.role must be given"),
    (user(role="tool"), "messages.0.tool_call_id must be given: the id of the call that this answers"),
    (user(tool_call_id="1"), 'messages.0.tool_call_id is for messages of the role "tool"; leave it out'),
    (
        user(tool_calls=[call("f", "{}") | {"id": "1"}]),
        'messages.0.tool_calls is for messages of the role "assistant"; leave it out',
    ),
    (user(tool_calls=[{}]), "messages.0.tool_calls.0.id must be given"),
    ({"prompt": "hello"}, "prompt is not a supported parameter; send messages"),
    ({"think": False}, "think is not a supported parameter; send enable_thinking"),
    ({"reasoning_effort": "high"}, "reasoning_effort is not supported: this model's chat template knows none"),
    ({"tool_choice": "required"}, "tool_choice requires a call, but there are no tools; send tools"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools are not supported: this model has no"),
    ({"tools": [{"type": "function"}]}, "tools.0.function must be given"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs must be at most 20"),
    ({"top_logprobs": 3}, "top_logprobs needs logprobs: true; send both, or neither"),
]
CASES = [(ask, *row) for ask, rows in ((Api.complete, BOTH + COMPLETIONS), (Api.chat, BOTH + CHATS)) for row in rows]


def param_of(message: str) -> str:
    """The parameter, which most messages begin with."""
    others = {"the": message.split()[1], "this": "messages", "This": message.removeprefix(TOO_LONG).split()[0]}
    first = re.split(r"[ :]", message)[0]
    return "max_completion_tokens" if " differ;" in message else others.get(first, first)


@pytest.mark.parametrize(("ask", "body", "message"), CASES)
def test_refused_by_name(api: Api, ask: Any, body: dict[str, Any], message: str) -> None:
    error = error_of(ask(api, **body), 404 if "the model" in message else 400)
    assert error["message"].startswith(message)
    assert (error["param"], error["type"]) == (param_of(message), "invalid_request_error")
    assert not re.search(r"(?i)\binput\b|literal|instance|validat|changes nothing|pydantic", error["message"])
    assert len(error["message"]) < 200


@pytest.mark.parametrize("name", UNSERVED)
def test_what_is_not_served_is_named_with_advice(api: Api, name: str) -> None:
    value, advice = UNSERVED[name]
    for ask in (api.chat, api.complete):
        error = error_of(ask(**{name: value}))
        assert (error["message"], error["param"]) == (f"{name} is not a supported parameter; {advice}", name)
        assert error["code"] == "unknown_parameter"


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v2", None, "there is nothing at /v2; GET / lists the routes"),
        ("GET", "/models", None, "there is nothing at /models, but /v1/models is: a base URL ends with /v1 for"),
        ("POST", "/chat/completions", {}, "there is nothing at /chat/completions, but /v1/chat/completions is"),
        ("POST", "/v1/v1/messages", {}, "/v1/v1/messages is not served, but /v1/messages is: a base URL"),
        ("POST", "/v1/" * 50 + "messages", {}, "/v1//v1/"),
        ("POST", "/v1/embeddings", {}, "/v1/embeddings is not served: this node only generates texts"),
        ("GET", "/v1/completions", None, "GET /v1/completions is not served; use POST"),
        ("GET", "/v1/models/gpt-5", None, "the model 'gpt-5' is not served here; ask for 'big-model'"),
        ("POST", "/tokenize", {"prompt": 5}, "prompt must be a string"),
        ("POST", "/tokenize", {}, "prompt or messages must be given, and not both"),
        ("POST", "/tokenize", {"prompt": "x", **user()}, "prompt or messages must be given, and not both"),
        ("POST", "/tokenize", {"prompt": ""}, "the prompt is empty"),
        ("POST", "/tokenize", {"prompt": "a", "surprise": 1}, "surprise is not a supported parameter"),
        ("POST", "/tokenize", {"prompt": "x", "continue_final_message": True}, "continue_final_message is for"),
        ("POST", "/tokenize", {"prompt": "x", "add_special_tokens": False}, "add_special_tokens is not a supported"),
        ("POST", "/tokenize", {"prompt": "x", "model": "gpt-5"}, "the model 'gpt-5' is not served here"),
        ("POST", "/detokenize", {}, "tokens must be given"),
        ("POST", "/detokenize", {"tokens": None}, "tokens must be a list"),
        ("POST", "/detokenize", {"tokens": [65] * ((1 << 16) + 1)}, "tokens must have at most 65536 members"),
        ("POST", "/detokenize", {"tokens": [1.5]}, "tokens.0 must be a whole number"),
        ("POST", "/detokenize", {"tokens": [-1]}, "tokens: -1 is no token id; they go from 0 to 255"),
        ("POST", "/detokenize", {"tokens": [999]}, "tokens: 999 is no token id; they go from 0 to 255"),
        ("POST", "/detokenize", {"tokens": [65], "model": "gpt-5"}, "the model 'gpt-5' is not served here"),
        ("POST", "/v1/completions", [1], "the body must be a JSON object"),
    ],
)
def test_other_routes(api: Api, method: str, path: str, body: object, expected: str) -> None:
    answer = api.client.request(method, path, json=body)
    assert error_of(answer, answer.status_code)["message"].startswith(expected)


@pytest.mark.parametrize(
    ("path", "name", "instead"),
    [
        ("chat/completions", "stop_sequences", "send stop"),
        ("chat/completions", "max_output_tokens", "send max_tokens"),
        ("chat/completions", "system", "send a message of the system"),
        ("chat/completions", "reasoning", "send reasoning_effort"),
        ("chat/completions", "thinking", "send enable_thinking"),
        ("responses", "think", "send reasoning.effort"),
        ("completions", "response_format", "send structured_outputs"),
        ("responses", "max_tokens", "send max_output_tokens"),
        ("responses", "response_format", "send text.format"),
        ("messages", "stop", "send stop_sequences"),
        ("messages", "response_format", "send output_config.format"),
    ],
)
def test_a_member_of_another_api_is_refused_with_its_name_here(path: str, name: str, instead: str) -> None:
    answer = Api().client.post(f"/v1/{path}", json={**body_of(path), name: "x"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"{name} is not a supported parameter; {instead}"
