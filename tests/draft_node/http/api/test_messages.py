"""`/v1/messages`: a request becomes a chat, its text blocks and events, and errors are Anthropic's."""

import json
from typing import Any
from unittest.mock import AsyncMock

import pytest

from draft_node.http.schema.messages import ToolUse
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Defaults
from tests.chats import PLAIN, QWEN3, R1
from tests.draft_node.http.api.test_responses import LONG, SPOKEN, without_ids
from tests.draft_node.http.fake import CONTEXT_LEN, KEY, Api, keyed
from tests.draft_node.http.fake import named_events_of as events_of
from tests.draft_node.http.speaking import speaking

SCHEMA = {"type": "object", "properties": {"city": {}}}
WEATHER = {"name": "weather", "input_schema": SCHEMA}
TOOLS: dict[str, Any] = {"tools": [WEATHER]}
THINKS: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
INTEGER: dict[str, Any] = {"type": "json_schema", "schema": {"type": "integer"}}
IN_A_SCHEMA: dict[str, Any] = {"output_config": {"format": INTEGER}}
LONG_USE = USE | {"input": {"city": "x" * (1 << 20)}}
LONG_THOUGHT = {"type": "thinking", "thinking": "x" * ((1 << 20) + 1)}
USER = {"role": "user", "content": "hello"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
BEGUN = {"role": "assistant", "content": "The"}
UNSUPPORTED = "which is not supported; send one of"
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


def ask(api: Api, **body: Any) -> Any:
    return api.client.post("/v1/messages", json={"max_tokens": 500, "messages": [USER], **body})


def count(api: Api, **body: Any) -> Any:
    return api.client.post("/v1/messages/count_tokens", json={"messages": [USER], **body})


def error_of(answer: Any, status: int = 400) -> str:
    """The message of an error, which has Anthropic's shape and nothing else."""
    assert answer.status_code == status, answer.text
    message: str = answer.json()["error"]["message"]
    kind = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}[status]
    assert answer.json() == {"type": "error", "error": {"type": kind, "message": message}}
    return message


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream adds up to, as clients join it."""
    message: dict[str, Any] = events[0]["message"]
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                kind = delta.pop("type").removesuffix("_delta")
                [(name, text)] = delta.items()
                if kind == "input_json":
                    assert (name, block["input"]) == ("partial_json", {})
                    block["input"] = json.loads(text)
                else:
                    assert name == kind
                    block[name] += text
            case "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
                message |= {"goodspeed": event["goodspeed"]} if "goodspeed" in event else {}
    return message


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_a_message(api: Api) -> None:
    answer = ask(api, max_tokens=3, system="Be brief.").json()
    assert answer.pop("id").startswith("msg_")
    usage = answer.pop("usage")
    assert answer.pop("content") == [{"type": "text", "text": "abc"}]
    ended = {"stop_reason": "max_tokens", "stop_sequence": None}
    assert answer == ended | {"type": "message", "role": "assistant", "model": "big-model"}
    assert (usage["input_tokens"], usage["output_tokens"]) == (len("system:Be brief.;user:hello;"), 3)
    assert usage["goodspeed"]["drafted"] == 3


def test_thinking_text_and_calls_are_blocks_in_order() -> None:
    answer = ask(speaking(SPOKEN), **TOOLS, **THINKS)
    assert answer.headers["X-GoodSpeed-Ignored"] == "budget_tokens"
    thought, said, first, second = answer.json()["content"]
    assert thought["thinking"] == "She asks about two cities."
    assert thought["signature"]
    assert (said["type"], said["text"].strip()) == ("text", "I look it up.")
    assert [call["input"] for call in (first, second)] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert first["id"] != second["id"]
    assert first["type"] == answer.json()["stop_reason"] == "tool_use"
    assert answer.json()["usage"]["output_tokens_details"]["thinking_tokens"] > 0


def test_events_of_a_text_come_in_the_official_order(api: Api) -> None:
    events = events_of(ask(api, max_tokens=2, stream=True))
    assert [event["type"] for event in events] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    begun = events[0]["message"]
    assert (begun["content"], begun["stop_reason"], begun["stop_sequence"]) == ([], None, None)
    uncached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    assert begun["usage"] == {"input_tokens": len("user:hello;"), "output_tokens": 0} | uncached
    assert events[5]["usage"]["output_tokens"] == 2


@pytest.mark.parametrize("num_at_once", [1, 2, 3, 7, 1000])
def test_streams_in_any_pieces_equal_the_whole(num_at_once: int) -> None:
    whole = ask(speaking(SPOKEN), **TOOLS).json()
    streamed = ask(speaking(SPOKEN, num_at_once=num_at_once), stream=True, **TOOLS)
    assert without_ids(joined(events_of(streamed))) == without_ids(whole)


@pytest.mark.parametrize(
    ("says", "body", "reason", "stop"),
    [
        ("It is cold.", {}, "end_turn", None),
        ("It is cold.", {"stop_sequences": ["warm", " is"]}, "stop_sequence", " is"),
        ("It is cold.", {"max_tokens": 4}, "max_tokens", None),
        (SPOKEN, TOOLS, "tool_use", None),
        ("", {}, "end_turn", None),
        ("x" * 200, {"max_tokens": 1 << 20}, "end_turn", None),
    ],
)
def test_why_it_ended(says: str, body: dict[str, Any], reason: str, stop: str | None) -> None:
    answer = ask(speaking(says), **body).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, stop)
    assert (answer["content"] == []) is (says == "")


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_may_fill_the_context(api: Api, stream: bool) -> None:
    """Agents ask for more tokens than a small context has; only a prompt that leaves no room is refused."""
    num_prompt = len("user:hello;")
    for max_tokens, reason in ((CONTEXT_LEN - num_prompt, "max_tokens"), (32_000, "model_context_window_exceeded")):
        answer = ask(api, max_tokens=max_tokens, stream=stream)
        message = joined(events_of(answer)) if stream else answer.json()
        assert (message["stop_reason"], message["usage"]["output_tokens"]) == (reason, CONTEXT_LEN - num_prompt)


def test_the_targets_own_stop_string_ends_the_turn() -> None:
    api = speaking("It is cold.")
    api.service.chat_defaults = Defaults(stop=(" is",))
    answer = ask(api, stop_sequences=["cold"]).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)


# -- what is asked for -------------------------------------------------------------------------------------------------


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def result(call_id: str, content: Any = "", **others: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **others}


def test_a_conversation_with_calls_is_that_of_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template is given what it is given for the same turns of a chat; `count_tokens` says how long that is."""
    api = speaking("Cold.")
    monkeypatch.setattr(api.service, "encode_chat", heard := AsyncMock(wraps=api.service.encode_chat))
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    second = USE | {"id": "c2", "caller": {"type": "direct"}}
    messages = [
        {"role": "user", "content": [text("Oslo"), text(""), text("Cold?")]},
        {"role": "assistant", "content": [thought, text("Well."), USE, thought, second]},
        {"role": "user", "content": [result("c1", "3"), result("c2", [text("4")]), text("And Bergen?")]},
    ]
    body = {"messages": messages, "system": [text("Be"), text("brief.")], **TOOLS, **THINKS}
    answer = ask(api, **body)
    assert answer.headers["X-GoodSpeed-Ignored"] == "budget_tokens, cache_control"
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    calls = [{"id": "c1", **call}, {"id": "c2", **call}]
    turns = [
        {"role": "system", "content": "Be\nbrief."},
        {"role": "user", "content": "Oslo\nCold?"},
        {"role": "assistant", "reasoning_content": "Hm.\nHm.", "content": "Well.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "tool", "tool_call_id": "c2", "content": "4"},
        {"role": "user", "content": "And Bergen?"},
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    assert api.chat(messages=turns, tools=tools, enable_thinking=True).status_code == 200
    counted = count(api, **body).json()
    assert heard.call_args_list == [heard.call_args] * 3
    assert heard.call_args.args[0][2]["reasoning_content"] == "Hm.\nHm."
    assert counted == {"input_tokens": answer.json()["usage"]["input_tokens"]}


NESTED: dict[str, Any] = {"a": 1}
for _ in range(32):
    NESTED = {"a": NESTED}


@pytest.mark.parametrize(
    ("given", "what"),
    [(NESTED, "not have more than 32 levels"), ({"a": float("nan")}, "not have NaN or Infinity, which are not JSON")],
)
def test_an_input_that_no_call_has_is_refused_by_its_own_name(given: dict[str, Any], what: str) -> None:
    messages = [{"role": "assistant", "content": [USE | {"input": given}]}, USER]
    body = json.dumps({"max_tokens": 5, "messages": messages})
    answer = speaking().client.post("/v1/messages", content=body, headers={"Content-Type": "application/json"})
    assert error_of(answer) == f"messages.0.content.0.input must {what}"


def test_a_users_own_word_is_quoted_as_it_is() -> None:
    """Also where it is the name of a parameter that has another name here."""
    answer = ask(speaking(), tools=[WEATHER | {"name": "max_completion_tokens"}] * 2)
    message = "tools.1.name: another tool is named 'max_completion_tokens', too; give each its own name"
    assert error_of(answer) == message


def test_an_answer_may_be_sent_back_as_it_was() -> None:
    api = speaking(SPOKEN)
    content = ask(api, **TOOLS).json()["content"]
    results = [{"type": "tool_result", "tool_use_id": one["id"], "is_error": False} for one in content if "id" in one]
    turns = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
    assert len(results) == 2
    assert ask(api, messages=turns, **TOOLS).status_code == 200
    assert ask(api, messages=[*turns, {"role": "assistant", "content": "Cold."}, USER], **TOOLS).status_code == 200


@pytest.mark.parametrize(
    ("template", "thinking", "thinks"),
    [
        (QWEN3, None, False),
        (QWEN3, "disabled", False),
        (QWEN3, "adaptive", True),
        (QWEN3, "enabled", True),
        (R1, None, True),
        (R1, "enabled", True),
    ],
)
def test_a_model_thinks_when_it_is_asked_to(template: str, thinking: str | None, thinks: bool) -> None:
    """Qwen's template ends with an empty thought where it is not to; R1's cannot do without."""
    api = speaking("x", template)
    given: dict[str, Any] = {} if thinking is None else {"thinking": {"type": thinking}}
    assert ask(api, **given).status_code == 200
    assert api.prompt.rstrip().endswith("</think>") is not thinks


@pytest.mark.parametrize(
    ("choice", "is_forced", "one_call", "num_tools"),
    [
        ({"type": "auto"}, False, False, 2),
        ({"type": "any"}, True, False, 2),
        ({"type": "any", "disable_parallel_tool_use": True}, True, True, 2),
        ({"type": "tool", "name": "time"}, True, True, 1),
        ({"type": "none"}, False, False, 0),
    ],
)
def test_which_tool_is_to_be_called(choice: dict[str, Any], is_forced: bool, one_call: bool, num_tools: int) -> None:
    api, tools = speaking(), [WEATHER, WEATHER | {"name": "time", "type": "custom"}]
    assert ask(api, tools=tools, tool_choice=choice).status_code == 200
    [generation] = api.service.generations
    parser = api.service.parser
    assert parser is not None
    assert (generation.constraint is not None, parser.one_call) == (is_forced, one_call)
    assert len(parser.schemas) == num_tools


def test_an_answer_in_a_schema(api: Api) -> None:
    assert ask(api, **IN_A_SCHEMA).status_code == 200
    [generation] = api.service.generations
    assert generation.constraint == Constraint("json_schema", json.dumps(INTEGER["schema"]))


def content(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [USER, {"role": role, "content": list(blocks)}, USER]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"max_tokens": None}, "max_tokens must be"),
        ({"stop_sequences": ["x"] * 5}, "stop_sequences must have at most 4"),
        ({"model": "claude"}, "the model 'claude' is not served here"),
        ({"enable_thinking": False}, "enable_thinking is not a supported parameter; send thinking"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is not a supported parameter; let the client call"),
        ({"container": "x"}, "container is not a supported parameter; nothing runs code here"),
        ({"messages": []}, "messages must"),
        ({"messages": [USER, BEGUN], **IN_A_SCHEMA}, "messages: the last one is the assistant's"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role must be"),
        ({"messages": [{"role": "user"}]}, "messages.0.content must be given"),
        ({"messages": [USER | {"content": "x" * 3000}]}, "prompt is too long: 1502 tokens > 1000 maximum (or more)"),
        (content(), "messages.1.content must not be empty"),
        ({"messages": [USER | {"content": [IMAGE]}]}, "messages must not end with a question about an image, which"),
        ({"messages": [USER | {"content": [PDF]}]}, "messages must not end with a question about a file"),
        (content({"type": "video"}), f"messages.1.content.0 has the type 'video', {UNSUPPORTED}"),
        (content({"type": "redacted_thinking"}), "messages.1.content must not have blocks of the type"),
        (content(IMAGE, role="assistant"), "messages.1.content must not have blocks of the type"),
        (content({"text": "x"}), "messages.1.content.0 has the type ''"),
        (content({"type": "text", "text": "x", "cited": [{}]}), "messages.1.content.0.cited is not"),
        (content(USE), 'messages.1.content must not have blocks of the type "tool_use" in the role "user"'),
        (content(result("c", [USE])), f"messages.1.content.0.content.0 has the type 'tool_use', {UNSUPPORTED} 'text'"),
        (content(text("x"), result("c")), "messages.1.content.1: tools are not supported"),
        (content(USE, role="assistant"), "messages.1: tools are not supported"),
        (
            {"system": "x", **content(text("x"), LONG_USE, role="assistant")},
            "messages.1.content.1.input must have at most",
        ),
        (content(LONG_THOUGHT, role="assistant"), "messages.1.content must have at most 1048576 characters"),
        ({"system": [IMAGE]}, "system.0.type must be"),
        (TOOLS, "tools are not supported: this model has no chat template"),
        ({"tools": [SEARCH]}, "tools must have one of your own: nothing runs web_search_20250305 here; send one"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0 has the type 'bash_20250124', which is"),
        ({"tools": [{"type": "tool_search_tool_bm25_20251119"}]}, "tools must have one of your own"),
        ({"tools": [{"type": "odd", "name": "x"}]}, f"tools.0 has the type 'odd', {UNSUPPORTED}"),
        ({"tool_choice": {"type": "any"}}, "tool_choice requires a call, but there are no tools"),
        ({"tool_choice": {"type": "tool"}, **TOOLS}, "tool_choice.name must be given"),
        ({"output_config": {"effort": "none"}, "tools": [WEATHER]}, "tools are not supported"),
        ({"output_format": {"type": "json_schema"}}, "output_format is not a supported parameter; send output_config"),
        ({"output_config": {"format": INTEGER | {"schema": {"type": "odd"}}}}, "output_config.format.schema"),
        ({"output_config": {"format": INTEGER | {"schema": LONG}}}, "output_config.format.schema has"),
        ({"stream_options": {}}, "stream_options needs stream"),
    ],
)
def test_refused_by_name(api: Api, body: dict[str, Any], message: str) -> None:
    assert error_of(ask(api, **body), 404 if "model" in body else 400).startswith(message)
    assert not api.service.generations


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools.1.name: another tool is named 'weather'"),
        ({"tools": [SEARCH, WEATHER, SEARCH, WEATHER]}, "tools.3.name: another tool is named 'weather'"),
        ({"tools": [SEARCH, WEATHER | {"input_schema": {"type": "string"}}]}, "tools.1.input_schema.type must be"),
        (content(USE | {"input": {"city": "\u4e2d" * 180_000}}, role="assistant"), "prompt is too long"),
        ({"tools": [WEATHER | {"input_schema": {"type": "string"}}]}, 'tools.0.input_schema.type must be "object"'),
        ({"tool_choice": {"type": "tool", "name": "x"}, **TOOLS}, "tool_choice.name: no tool is named 'x'"),
    ],
)
def test_tools_are_refused_by_the_names_of_this_api(body: dict[str, Any], message: str) -> None:
    assert error_of(ask(speaking(), **body)).startswith(message)


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", True), ("high", True), (None, False)])
def test_an_effort_alone_decides_as_in_chats(effort: str | None, thinks: bool) -> None:
    api, switch = speaking(), None if effort else False
    assert ask(api, output_config={"effort": effort}).status_code == 200
    assert api.chat(messages=[USER], reasoning_effort=effort, enable_thinking=switch).status_code == 200
    assert api.service.prompts == [api.prompt] * 2
    assert ("<think>\n\n</think>" not in api.prompt) is thinks


def test_thinking_that_cannot_be_switched_off_is_refused_and_on_is_ignored() -> None:
    answer = ask(speaking("x", R1), thinking={"type": "disabled"})
    assert error_of(answer).startswith("thinking: this model's chat template cannot")
    answer = ask(speaking("x", PLAIN), thinking={"type": "enabled"})
    assert (answer.status_code, answer.headers["X-GoodSpeed-Ignored"]) == (200, "thinking")


def test_threads_are_refused_by_the_code_that_the_official_client_knows(api: Api) -> None:
    error = ask(api, thread={"type": "create"}).json()["error"]
    assert error["details"] == {"error_code": "thread_unsupported_request"}


def test_only_what_makes_the_prompt_is_counted(api: Api) -> None:
    assert count(api, system="x").json() == {"input_tokens": len("system:x;user:hello;")}
    assert error_of(count(api, max_tokens=1)).startswith("max_tokens is not a supported parameter")
    assert error_of(count(api, model="x"), 404)
    assert error_of(count(api, messages=[USER | {"content": "x" * 3000}]))
    assert not api.service.generations


@pytest.mark.parametrize("path", ["", "/count_tokens", "/batches"])
def test_a_key_comes_in_either_header(path: str) -> None:
    api = keyed()
    served = 200 if path != "/batches" else 400
    for headers in ({"x-api-key": KEY}, {"Authorization": f"Bearer {KEY}"}):
        body = {"messages": [USER]} | ({} if path else {"max_tokens": 1})
        version = {"anthropic-version": "2023-06-01"}
        assert api.client.post(f"/v1/messages{path}", json=body, headers=headers | version).status_code == served
    for headers in ({}, {"x-api-key": "another"}, {"Authorization": "Bearer x", "x-api-key": KEY}):
        error_of(api.client.post(f"/v1/messages{path}", json={}, headers=headers), 401)
    assert len({generation.user for generation in api.service.generations}) <= 1


def test_an_empty_turn_and_a_call_of_an_unknown_tool_are_taken_as_an_answer_had_them_and_threads_are_not(
    api: Api,
) -> None:
    assert ask(api, messages=[USER, {"role": "assistant", "content": []}, USER]).status_code == 200
    assert ToolUse.model_validate(USE | {"name": "get the weather"}).name == "get the weather"
    error_of(ask(api, messages=[{"role": "user", "content": []}]))
