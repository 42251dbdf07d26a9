"""Tools and thinking over HTTP: what the template is given, and what answers and streams say."""

import json
from typing import Any

import pytest

from draft_node.http.ask.body import MAX_CONTAINERS
from tests.chats import MISTRAL, PLAIN, QWEN3, R1, function, ids_of
from tests.draft_node.http.fake import USER, chunks_of, error_of, refused
from tests.draft_node.http.speaking import speaking

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome </tool_call>"}}\n</tool_call>'
OTHER = '\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
ARGUMENTS = '{"city": "Rome </tool_call>"}'
TOOLS = [function(), function("time")]
api = speaking


def message_of(answer: Any) -> tuple[dict[str, Any], str]:
    """The message and why it ended; ids of calls are checked and left out."""
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    for call in choice["message"].get("tool_calls", ()):
        assert len(call.pop("id")) in (9, len("call_") + 24)
    return choice["message"], choice["finish_reason"]


def streamed(answer: Any) -> tuple[dict[str, Any], str]:
    """The same of a stream, joined as the official client does it."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
    reasons = []
    for chunk in chunks_of(answer):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content", "")
            for name in ("reasoning", "reasoning_content"):
                if name in delta:
                    message[name] = message.get(name, "") + delta[name]
            for call in delta.get("tool_calls", ()):
                calls = message.setdefault("tool_calls", [])
                assert call.pop("index") == len(calls)
                assert call.pop("id")
                calls.append(call)
            reasons += [choice["finish_reason"]] * (choice["finish_reason"] is not None)
    if "tool_calls" in message and not message["content"]:
        message["content"] = None
    [reason] = reasons
    return message, reason


def call(name: str = "weather", arguments: str = ARGUMENTS) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_an_answer_with_thinking_text_and_calls() -> None:
    here = api(f"<think>\nhm, Rome\n</think>\n\nLet me look.\n{CALL}{OTHER}<|im_end|>")
    answer = here.chat(tools=TOOLS)
    message, reason = message_of(answer)
    assert message.pop("tool_calls") == [call(), call("time", "{}")]
    thought = dict.fromkeys(("reasoning", "reasoning_content"), "hm, Rome")
    assert message == thought | {"role": "assistant", "content": "Let me look.", "refusal": None}
    assert reason == "tool_calls"
    assert answer.json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("\nhm, Rome\n") + 2}


@pytest.mark.thorough
@pytest.mark.parametrize("num_at_once", [1, 2, 3, 5, 8, 13, 1000])
@pytest.mark.parametrize(
    ("says", "template"),
    [
        (f"<think>\nhm\n</think>\n\nLook.\n{CALL}{OTHER}", QWEN3),
        (f"{CALL}", QWEN3),
        ("<tool_call>\n{oh no", QWEN3),
        ("\nso\n</think>\n\nyes", R1),
        ('x[TOOL_CALLS]weather[ARGS]{"city": "Rome </tool_call>"}<bos>', MISTRAL),
        ("só <b>", QWEN3),
    ],
)
def test_a_stream_says_what_the_whole_says(says: str, template: str, num_at_once: int) -> None:
    tools = {"tools": TOOLS} if template != R1 else {}
    whole = message_of(api(says, template).chat(**tools))
    assert streamed(api(says, template, num_at_once).chat(stream=True, **tools)) == whole


def test_markers_that_are_special_tokens() -> None:
    here = api('[TOOL_CALLS]weather[ARGS]{"city": "Rome </tool_call>"}', MISTRAL)
    made = here.chat(tools=TOOLS).json()["choices"][0]["message"]
    assert made["content"] is None
    assert made["tool_calls"][0]["function"] == call()["function"]
    turns = [USER, made, {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "sun"}]
    assert here.chat(messages=turns, tools=TOOLS).status_code == 200  # the template checks the ids' length
    message, _ = message_of(api("[TOOL_CALLS]x<bos>", MISTRAL).chat())
    assert message["content"] == "x"  # without tools a special token is no text, as ever
    message, _ = message_of(api("[TOOL_CALLS]x<bos>", MISTRAL).chat(tools=TOOLS))
    assert message["content"] == "[TOOL_CALLS]x"


def test_a_call_as_deep_as_an_answer_may_have_it_can_be_sent_back() -> None:
    deepest, deeper = ('{"city": ' + "[" * levels + "]" * levels + "}" for levels in (31, 32))
    here = api(CALL.replace(ARGUMENTS, deepest))
    (choice,) = here.chat(tools=TOOLS).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == deepest
    result = {"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": "sunny"}
    assert here.chat(tools=TOOLS, messages=[USER, choice["message"], result]).status_code == 200
    choice["message"]["tool_calls"][0]["function"]["arguments"] = deeper
    error = error_of(here.chat(tools=TOOLS, messages=[USER, choice["message"], result]))
    assert "must not have more than 32 levels" in error["message"]
    message, _ = message_of(api(CALL.replace(ARGUMENTS, deeper)).chat(tools=TOOLS))
    assert "tool_calls" not in message


def test_a_call_that_is_cut_is_content_and_the_text_is_cut() -> None:
    message, reason = message_of(api(CALL).chat(tools=TOOLS, max_tokens=12))
    assert reason == "length"
    assert "tool_calls" not in message
    message, reason = message_of(api(CALL + " more").chat(tools=TOOLS, max_tokens=len(ids_of(CALL))))
    assert (message["tool_calls"], reason) == ([call()], "length")


def test_the_answer_ends_after_its_first_call() -> None:
    here = api(f"{CALL}{OTHER}")
    answer = here.chat(tools=TOOLS, parallel_tool_calls=False)
    message, reason = message_of(answer)
    assert (message["tool_calls"], reason) == ([call()], "tool_calls")
    assert answer.json()["usage"]["completion_tokens"] <= len(ids_of(CALL))
    message, _ = message_of(here.chat(tools=TOOLS, parallel_tool_calls=True))
    assert len(message["tool_calls"]) == 2


def test_without_tools_nothing_is_called() -> None:
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        here = api(CALL)
        message, reason = message_of(here.chat(**body))
        assert (message["content"], reason) == (CALL, "stop")
        assert "# Tools" not in here.prompt


def test_logprobs_tell_all_tokens() -> None:
    says = f"<think>\nhm\n</think>\n\nLook.\n{CALL}"
    whole = api(says).chat(tools=TOOLS, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in whole) == says
    chunks = chunks_of(api(says, num_at_once=7).chat(tools=TOOLS, logprobs=True, stream=True))
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [token for told in parts if told for token in told["content"]] == whole


def test_conversations_with_calls_as_the_template_writes_them() -> None:
    here = api("x")
    calls = [{"id": "1", **call(arguments='{"city":"Rome"}')}]
    calling = {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "hm"}
    result = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sun"}]}
    assert here.chat(messages=[USER, calling, result], tools=TOOLS[:1]).status_code == 200
    tool = json.dumps({**TOOLS[0]}, ensure_ascii=False)
    assert here.prompt == (
        f"<|im_start|>system\n# Tools\n<tools>\n{tool}\n</tools>\nAnswer with <tool_call>\n"
        '{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n'
        "<|im_start|>assistant\n"
        '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("body", "thinks"),
    [
        ({}, True),
        ({"reasoning_effort": "none"}, False),
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True, "reasoning_effort": "none"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}, "enable_thinking": True}, False),
        ({"reasoning_effort": "high"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}, True),
    ],
)
def test_thinking_switched_on_and_off(body: dict[str, Any], thinks: bool) -> None:
    here = api("x")
    assert here.chat(**body).status_code == 200
    assert here.prompt.endswith("</think>\n\n") is not thinks


def test_what_the_node_sets_counts_where_the_request_does_not_say() -> None:
    here = api("x", settings={"enable_thinking": False})
    here.chat()
    here.chat(reasoning_effort="low")
    here.chat(chat_template_kwargs={"enable_thinking": True})
    assert [prompt.endswith("</think>\n\n") for prompt in here.service.prompts] == [True, False, False]


DEEP: dict[str, Any] = {}
for _ in range(40):
    DEEP = {"properties": DEEP}
NO_OBJECT = {"role": "assistant", "tool_calls": [{"id": "1", **call(arguments="[]")}]}
NO_TOOL = {"type": "function", "function": {"name": "x"}}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": "x"}, "tools", "must be a list"),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type", "must be 'function'"),
    ({"tools": [function("a b")]}, "tools.0.function.name", "must match pattern"),
    ({"tools": [function("x", strict="yes")]}, "tools.0.function.strict", "must be true or false"),  # type: ignore[arg-type]
    ({"tools": [function(), function()]}, "tools.1.function.name", "another tool is named 'weather', too"),
    ({"tools": [function()] * 1025}, "tools", "must have at most 1024 members"),
    ({"tools": [function(a=DEEP)]}, "tools.0.function.parameters", "must not have more than 32 levels"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "must be 'none', 'auto' or 'required'"),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", "must be 'function'"),
    ({"tools": TOOLS, "tool_choice": NO_TOOL}, "tool_choice.function.name", "no tool"),
    ({"reasoning_effort": "huge"}, "reasoning_effort", "must be"),
    ({"chat_template_kwargs": {"loud": True}}, "chat_template_kwargs", "sets 'loud', which this model's chat template"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "must not set 'messages'"),
    ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs", "must not set 'chat_template'"),
    ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs", "must not set 'bos_token'"),
    ({"chat_template_kwargs": {"__class__": 1}}, "chat_template_kwargs", "must not set '__class__'"),
    ({"chat_template_kwargs": {"enable_thinking": DEEP}}, "chat_template_kwargs", "nest lists and objects more than 8"),
    ({"chat_template_kwargs": {"enable_thinking": "x" * 20_000}}, "chat_template_kwargs", "at most 16384 characters"),
    ({"chat_template_kwargs": {f"a{i}": 1 for i in range(17)}}, "chat_template_kwargs", "at most 16 members"),
    ({"chat_template_kwargs": 1}, "chat_template_kwargs", "must be an object"),
    ({"messages": [NO_OBJECT, USER]}, "messages.0.tool_calls.0.function.arguments", "must be a JSON object"),
]


@pytest.mark.parametrize(("body", "param", "what"), REFUSED)
def test_refused_by_name(body: dict[str, Any], param: str, what: str) -> None:
    assert refused(api("x").chat(**body), param, what).startswith(param.partition(".")[0])


@pytest.mark.parametrize(
    ("template", "options", "body", "param"),
    [
        (QWEN3, {"tools": "none"}, {"tools": TOOLS}, "tools"),
        (PLAIN, {}, {"reasoning_effort": "high"}, "reasoning_effort"),
        (R1, {}, {"reasoning_effort": "none"}, "reasoning_effort"),
        (R1, {}, {"enable_thinking": False}, "enable_thinking"),
        (PLAIN, {}, {"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
    ],
)
def test_what_a_template_does_not_know_is_refused(template: str, options: Any, body: Any, param: str) -> None:
    refused(api("x", template, **options).chat(**body), param)


@pytest.mark.parametrize(
    ("template", "thinks", "ignored"),
    [(PLAIN, True, True), (PLAIN, False, True), (R1, True, True), (QWEN3, True, False)],
)
def test_a_switch_that_a_template_does_not_know_is_ignored_where_it_would_change_nothing(template, thinks, ignored):
    answer = api("x", template).chat(enable_thinking=thinks)
    assert answer.status_code == 200
    assert answer.headers.get("X-GoodSpeed-Ignored") == ("enable_thinking" if ignored else None)


def test_a_node_may_leave_thinking_in_the_text() -> None:
    message, _ = message_of(api("<think>\nhm\n</think>\n\nyes", thinking="none").chat())
    assert message["content"] == "<think>\nhm\n</think>\n\nyes"
    assert message_of(api("x", PLAIN).chat(reasoning_effort="none"))[0]["content"] == "x"


def test_a_prompt_is_counted_with_its_tools() -> None:
    here, counts = api("x"), set()
    no_thinking = {"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}
    for given in (*no_thinking, {"reasoning_effort": "none"}):
        body = {"messages": [USER], "tools": TOOLS, "add_special_tokens": False, **given}
        counts.add(here.client.post("/tokenize", json=body).json()["count"])
        counts.add(here.chat(**body).json()["usage"]["prompt_tokens"])
    assert len(counts) == 1
    assert here.client.post("/tokenize", json=body | {"reasoning_effort": "low"}).json()["count"] not in counts
    refused(here.client.post("/tokenize", json={"prompt": "x", "tools": TOOLS}), "tools")
    here.service.max_chars = 100
    assert error_of(here.chat(tools=[function("x" * 64), *TOOLS]))["code"] == "context_length_exceeded"


def test_arguments_are_counted_before_anything_is_made_of_them() -> None:
    """JSON inside of strings takes as long to read as the body's own."""
    lists = json.dumps({"a": [[] for _ in range(MAX_CONTAINERS - 2)]})
    calls = [{"id": str(i), **call(arguments=lists)} for i in range(2)]
    one = api("x").chat(messages=[{"role": "assistant", "tool_calls": calls[:1]}, USER])
    assert error_of(one)["code"] == "context_length_exceeded"
    error = error_of(api("x").chat(messages=[{"role": "assistant", "tool_calls": calls}, USER]), 413)
    assert "lists and objects" in error["message"]
