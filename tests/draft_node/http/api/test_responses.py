"""`/v1/responses`: what a request says becomes a chat, and its text items and events, whole and streamed alike."""

import json
import re
from typing import Any

import pytest

from tests.draft_node.http.fake import Api, named_events_of, refused
from tests.draft_node.http.speaking import speaking

SPOKEN = (
    "<think>\nShe asks about two cities.\n</think>\n\nI look it up.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>'
)
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}
TOOLS = {"tools": [WEATHER]}
TOOLS_OF_CHATS = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER["parameters"]}}]
OF_CALLS = ("arguments", "output", "call_id", "name")
OF_SCHEMAS = {"schema": {"type": "object"}, "name": "n", "strict": True, "description": "d"}
CALL = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}
THOUGHT = {"type": "reasoning", "content": "Hm."}
LONG = {"description": "x" * 70_000}


def respond(api: Api, **body: Any) -> Any:
    return api.client.post("/v1/responses", json={"input": "hello", **body})


def events_of(answer: Any) -> list[dict[str, Any]]:
    """The events, numbered in order."""
    events = named_events_of(answer)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def without_ids(value: Any) -> Any:
    """Returns what is the same in two answers to one request."""
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    if isinstance(value, dict):
        new = ("id", "call_id", "item_id", "created_at", "completed_at")
        return {name: without_ids(each) for name, each in value.items() if name not in new}
    return value


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_a_response(api: Api) -> None:
    answer = respond(api, max_output_tokens=3, metadata={"a": "b"}, instructions="Be brief.").json()
    assert answer["id"].startswith("resp_")
    [item] = answer["output"]
    assert item.pop("id").startswith("msg_")
    text = {"type": "output_text", "text": "abc", "annotations": [], "logprobs": []}
    assert item == {"type": "message", "status": "incomplete", "role": "assistant", "content": [text]}
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (answer["metadata"], answer["instructions"], answer["store"]) == ({"a": "b"}, "Be brief.", False)
    usage = answer["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (len("system:Be brief.;user:hello;"), 3)
    assert usage["goodspeed"]["drafted"] == 3


def test_thinking_text_and_calls_are_items_in_order() -> None:
    answer = respond(speaking(SPOKEN), **TOOLS).json()
    thought, said, first, second = answer["output"]
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "She asks about two cities."}]
    assert said["content"][0]["text"].strip() == "I look it up."
    assert [json.loads(call["arguments"]) for call in (first, second)] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert first["call_id"] != second["call_id"]
    assert {item["status"] for item in answer["output"]} == {answer["status"]} == {"completed"}
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_events_of_a_text_come_in_the_official_order(api: Api) -> None:
    events = events_of(respond(api, max_output_tokens=2, stream=True))
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        "incomplete",
    ]
    assert events[0]["response"]["output"] == []
    assert events[3]["part"]["text"] == ""
    assert {event["item_id"] for event in events if "item_id" in event} == {events[2]["item"]["id"]}


@pytest.mark.parametrize(("says", "num_at_once"), [*((SPOKEN, number) for number in (1, 2, 3, 7, 1000)), ("", 1)])
def test_streams_in_any_pieces_equal_the_whole(says: str, num_at_once: int) -> None:
    whole = respond(speaking(says), **TOOLS).json()
    events = events_of(respond(speaking(says, num_at_once=num_at_once), stream=True, **TOOLS))
    assert (whole["output"] == [], whole["status"]) == (says == "", "completed")
    last = events[-1]["response"]
    assert without_ids(last["output"]) == without_ids(whole["output"])
    assert events[-1]["type"] == "response.completed"
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == last["output"]
    for index, item in enumerate(last["output"]):
        deltas = [e["delta"] for e in events if e.get("output_index") == index and e["type"].endswith(".delta")]
        assert "".join(deltas) == (item["arguments"] if "arguments" in item else item["content"][0]["text"])


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_a_conversation_with_calls_is_that_of_a_chat() -> None:
    """The prompt is the one that the same turns make as messages of a chat."""
    api = speaking()
    call = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    cold = {"type": "output_text", "text": "Cold.", "annotations": [], "logprobs": []}
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Oslo?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "tool_search_output", "execution": "server", "tools": []},
        {"type": "function_call", "call_id": "c1", "id": "fc_1", "status": "completed", **call},
        {"type": "function_call_output", "call_id": "c1", "output": "3 degrees"},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [cold]},
        {"role": "user", "content": "And Bergen?"},
    ]
    assert respond(api, input=items, **TOOLS).status_code == 200
    calls = [{"id": "c1", "type": "function", "function": call}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "3 degrees"},
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "And Bergen?"},
    ]
    assert api.chat(messages=messages, tools=TOOLS_OF_CHATS).status_code == 200
    assert api.service.prompts == [api.prompt] * 2


@pytest.mark.parametrize("form", [{"type": "text", "strict": False}, {"type": "json_object", "schema": {}}])
def test_members_that_ask_for_nothing_are_no_schema(form: dict[str, Any]) -> None:
    assert respond(speaking(), input="x", text={"format": form}).status_code == 200


def test_text_after_a_call_does_not_part_it_from_its_result() -> None:
    api, user = speaking(), {"role": "user", "content": "Oslo?"}
    call = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    items = [
        user,
        {"type": "function_call", "call_id": "c1", **call},
        {"type": "message", "role": "assistant", "content": "Wait."},
        {"type": "function_call_output", "call_id": "c1", "output": "3 degrees"},
    ]
    assert respond(api, input=items, **TOOLS).status_code == 200
    calls = [{"id": "c1", "type": "function", "function": call}]
    turn = {"role": "assistant", "content": "Wait.", "tool_calls": calls}
    told = {"role": "tool", "tool_call_id": "c1", "content": "3 degrees"}
    assert api.chat(messages=[user, turn, told], tools=TOOLS_OF_CHATS).status_code == 200
    assert api.service.prompts == [api.prompt] * 2
    assert "calls cannot be continued" in respond(api, input=items[:3], **TOOLS).text, "as of a chat"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "\u4e2d" * 180_000},
        {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "\u4e2d" * 180_000}},
    ],
)
def test_a_call_in_any_letters_may_be_sent_back(api: Api, item: dict[str, Any]) -> None:
    """Six characters for each of them would be more than a call may have."""
    answer = respond(speaking(), input=[item, {"type": "function_call_output", "call_id": "c", "output": "x"}])
    refused(answer, "input", code="context_length_exceeded")


def test_an_output_that_was_cut_while_thinking_may_be_sent_back() -> None:
    api = speaking(SPOKEN)
    user = {"role": "user", "content": "Well?"}
    [item] = respond(api, input=[user], max_output_tokens=9, **TOOLS).json()["output"]
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")
    thought = item["content"][0]["text"]
    assert respond(api, input=[user, item, item, user], **TOOLS).status_code == 200
    turn = {"role": "assistant", "content": "", "reasoning_content": thought}
    assert api.chat(messages=[user, turn, turn, user], tools=TOOLS_OF_CHATS).status_code == 200
    assert api.service.prompts[1:] == [api.prompt] * 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"include": ["message.output_text.logprobs"]}, "include.0"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "shell"}]}, "tools.0"),
        ({"tools": [{"type": "custom"}]}, "tools.0.name"),
        ({"tools": [{"type": "custom", "name": "a", "format": {"type": "xml"}}]}, "tools.0.format"),
        ({"tools": [WEATHER]}, "tools"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"input": "x" * 1500}, "input"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"stream_options": {}}, "stream_options"),
        ({"goodspeed": {"speed": 1}}, "goodspeed.speed"),
        ({"input": []}, "input"),
        ({"input": "x" * 3000}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"input": [{"type": "shell_call", "call_id": "c"}]}, "input.0"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input.0.call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output"),
        *(({"input": [{"role": "user", "content": "x", name: "y"}]}, f"input.0.{name}") for name in OF_CALLS),
        ({"input": [{"type": "reasoning", "summary": [], "role": "user"}]}, "input.0.role"),
        ({"input": [RESULT | {"content": "y"}]}, "input.0.content"),
        ({"input": [{"role": "user", "content": "x"}, CALL | {"call_id": ""}]}, "input.1.call_id"),
        ({"input": [{"role": "user", "content": "x"}, THOUGHT, CALL | {"name": ""}]}, "input.2.name"),
        ({"input": [{"role": "user", "content": "x"}, CALL]}, "input.1"),
        ({"input": [{"role": "user", "content": "x"}, RESULT]}, "input.1"),
        ({"input": [{"role": "user", "content": "x"}, RESULT | {"call_id": "x" * 257}]}, "input.1.call_id"),
        ({"input": [CALL, THOUGHT | {"content": "x" * ((1 << 20) + 1)}]}, "input.1.content"),
        ({"text": {"format": {"type": "json_object", "schema": {"type": "object"}}}}, "text.format.schema"),
        *(({"text": {"format": {"type": "text", name: x}}}, f"text.format.{name}") for name, x in OF_SCHEMAS.items()),
        ({"tool_choice": {"type": "auto", "name": "weather"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "a b"}}, "tool_choice.name"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "odd"}}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": LONG}}}, "text.format.schema"),
    ],
)
def test_refused_by_name(api: Api, body: dict[str, Any], param: str) -> None:
    message = refused(respond(api, **body), param, param.split(".")[0])
    assert not re.search(r"messages\.|completion_tokens|reasoning_effort|response_format|function\.", message)
    assert not re.search(r"json_schema\.|given: given| tool$", message)
    assert not api.service.generations
