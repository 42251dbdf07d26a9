"""Sessions of the coding agent Codex at `/v1/responses`: its requests as it shapes them, in words of our own."""

import json
from typing import Any

import pytest

from tests.draft_node.http.ask.test_tool_constraints import may_end_after
from tests.draft_node.http.fake import Api, ignored_of, named_events_of, official, refused
from tests.draft_node.http.speaking import speaking

PATCH = '*** Begin Patch\n*** Update File: "a b.py"\n@@\n-x = 1\n+x = "\u00fc\\n"\n*** End Patch'
GRAMMAR = 'start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?\nhunk: /.+/ LF\n%import common.LF'
ENCRYPTED = "gAAAAABo" + "x" * 600


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def function(name: str, *required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": f"{name}.", "strict": False, "parameters": schema}


def namespace(name: str, *tools: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **others}


def said(role: str, *texts: str, **others: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts], **others}


def result(call_id: str, output: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": output}


def later(*tools: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Tools that come as an item of the input."""
    return {"type": "additional_tools", "role": "developer", "tools": list(tools), **others}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
ISSUES = namespace(
    "mcp__tracker__",
    {**function("open", "title", title=TEXT), "defer_loading": True, "output_schema": {"type": "object"}},
    function("close", "number", number=NUMBER),
    description="The team's issues.",
)
FORMAT = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
FREEFORM = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files by a patch, not JSON.",
    "format": FORMAT,
}
QUERY = function("", "query", query=TEXT)["parameters"]
SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds more tools.", "parameters": QUERY}
TOOLS = [
    function("exec_command", "cmd", cmd=TEXT, workdir=TEXT, yield_time_ms=NUMBER),
    function("write_stdin", "session_id", session_id=NUMBER, chars=TEXT),
    function("update_plan", "plan", plan={"type": "array", "items": {"type": "object"}}),
    function("view_image", "path", path=TEXT),
    *(function(name, "id", id=TEXT) for name in ("spawn_agent", "wait", "close_agent", "list_mcp_resources")),
    *(function(name, "id", id=TEXT) for name in ("read_mcp_resource", "request_user_input", "get_goal")),
    FREEFORM,
    ISSUES,
    SEARCH,
    {"type": "web_search", "external_web_access": True, "filters": {"allowed_domains": ["example.org"]}},
    {"type": "image_generation", "output_format": "png"},
]
FIRST = [
    said("developer", "<permissions instructions>Write in the workspace only.</permissions instructions>"),
    said("user", "# AGENTS.md\nRun the tests.", "<environment_context><cwd>/repo</cwd></environment_context>"),
    said("user", "Mend the greeting."),
]
AFTER_CALLS = [
    *FIRST,
    {"type": "reasoning", "summary": [], "encrypted_content": ENCRYPTED},
    said("assistant", "I look first.", phase="commentary", status="completed", id="msg_1"),
    {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "ls"}', "call_id": "c1", "id": "fc_1"},
    {"type": "function_call", "name": "view_image", "arguments": '{"path": "a.png"}', "call_id": "c2"},
    result("c1", "Exit code: 0\na b.py"),
    result("c2", [{"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"}]),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Now the patch."}], "encrypted_content": None},
    {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH, "call_id": "c3", "status": "completed"},
    result("c3", [{"type": "input_text", "text": "Done!"}], "custom_tool_call_output"),
    {"type": "function_call", "name": "open", "namespace": "mcp__tracker__", "arguments": "{}", "call_id": "c4"},
    result("c4", "#7"),
]
LONG = [
    {"type": "compaction", "encrypted_content": ENCRYPTED},
    said("user", "<summary of the work so far>"),
    later(function("deploy", "to", to=TEXT), TOOLS[0]),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "ruff"}},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"},
    {"type": "local_shell_call", "call_id": "s1", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "s1", "output": "a b.py"},
    {"type": "tool_search_call", "call_id": "f1", "execution": "client", "arguments": {"query": "logs"}},
    {"type": "tool_search_output", "call_id": "f1", "execution": "client", "tools": [function("read_logs")]},
    {"type": "tool_search_call", "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "execution": "server", "tools": [{"type": "mcp", "server_label": "x"}]},
    *AFTER_CALLS,
    said("assistant", "Done.", phase="final_answer"),
    said("user", "Thanks. Deploy it."),
]
OF_EVERY_TURN = {"prompt_cache_key", "client_metadata", "verbosity", "summary", "web_search", "image_generation"}
OF_EVERY_TURN |= {"format", "defer_loading", "output_schema"}
RUN = {**FREEFORM, "name": "exec", "description": "Runs a script."}
FUNCTIONS = namespace("functions", RUN, function("wait", "cell_id", cell_id=TEXT))
CODE_MODE = [
    later(FUNCTIONS, namespace("clock", function("sleep", "s", s=NUMBER)), id="at_1"),
    said("developer", "You are a coding agent.", id="msg_0"),
    *FIRST,
]
SPOKEN = "Now.\n" + "\n".join(
    [called("apply_patch", input=PATCH), called("mcp__tracker__open", title="x"), called("tool_search", query="logs")]
)
OWN = called("apply_patch", input="x")
OTHER = called("exec_command", cmd="ls")
CLOSING = called("mcp__tracker__close", number=7)
OOPS = {"type": "function_call", "name": "exec_command", "arguments": "oops", "call_id": "c9"}
HALF = OOPS | {"arguments": '{"cmd": "\\ud800"}'}
LISTED = {**TOOLS[0], "parameters": {"type": "array"}}
WEB = {"type": "web_search"}
APPLY, OH = ({"type": "custom", "name": name} for name in ("apply_patch", "oh"))
TRACKER, CRM, WAIT = ({"type": "namespace", "name": name} for name in ("mcp__tracker__", "crm", "wait"))


def asked(items: list[dict[str, Any]] = FIRST, **others: Any) -> dict[str, Any]:
    """The body of a turn."""
    return {
        "model": "goodspeed",
        "instructions": "You are a coding agent. " + "Keep changes small. " * 400,
        "input": items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "019a-session",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "019a"},
        **others,
    }


def post(api: Api, **body: Any) -> Any:
    answer = api.client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def written(says: str, **others: Any) -> Any:
    """The answer of a model that says this, as one body."""
    return post(speaking(says), **asked(stream=False, **others)).json()


def shown_tools(api: Api) -> list[dict[str, Any]]:
    """The tools in the newest prompt."""
    return [json.loads(line)["function"] for line in api.prompt.splitlines() if line.startswith('{"type": "func')]


def test_the_first_turn() -> None:
    api = speaking()
    answer = post(api, **asked())
    assert set(ignored_of(answer)) == OF_EVERY_TURN
    assert [event["type"] for event in named_events_of(answer)][-1] == "response.completed"
    shown = shown_tools(api)
    names = [tool["name"] for tool in shown]
    assert names[:2] == ["exec_command", "write_stdin"]
    assert names[-4:] == ["apply_patch", "mcp__tracker__open", "mcp__tracker__close", "tool_search"]
    [patch, opening, closing, _] = shown[-4:]
    assert GRAMMAR in patch["description"]
    assert patch["parameters"]["required"] == ["input"]
    assert opening["description"].endswith("mcp__tracker__...: The team's issues.")
    assert closing["description"] == "close."


def test_a_turn_after_calls_shows_them_to_the_model() -> None:
    api = speaking()
    answer = post(api, **asked(AFTER_CALLS))
    assert set(ignored_of(answer)) == {*OF_EVERY_TURN, "encrypted_content", "input_image"}
    after_the_question = api.prompt.partition("Mend the greeting.")[2]
    turns = [
        "I look first.\n" + called("exec_command", cmd="ls") + "\n" + called("view_image", path="a.png"),
        "<tool_response>\nExit code: 0\na b.py\n</tool_response>",
        "<tool_response>\n[an image that this model cannot read]\n</tool_response>",
        "\n<tool_call>\n" + json.dumps({"name": "apply_patch", "arguments": {"input": PATCH}}, ensure_ascii=False),
        "<tool_response>\nDone!\n</tool_response>",
        called("mcp__tracker__open"),
        "<tool_response>\n#7\n</tool_response>",
    ]
    found = [after_the_question.find(turn) for turn in turns]
    assert -1 not in found
    assert found == sorted(found)


def test_a_long_session_with_a_compaction_and_tools_that_came_later() -> None:
    api = speaking()
    answer = post(api, **asked(LONG, parallel_tool_calls=False, reasoning=None))
    hosted = {"compaction", "web_search_call", "image_generation_call", "mcp", "encrypted_content", "input_image"}
    hosted |= {"local_shell_call", "local_shell_call_output"}
    assert set(ignored_of(answer)) == (OF_EVERY_TURN | hosted) - {"summary"}
    assert ENCRYPTED not in api.prompt
    names = [tool["name"] for tool in shown_tools(api)]
    assert names[-2:] == ["deploy", "read_logs"]
    assert names.count("exec_command") == 1
    assert called("tool_search", query="logs") in api.prompt
    assert "Found these tools: read_logs" in api.prompt


def test_a_session_whose_tools_are_all_in_an_item_and_run_by_scripts() -> None:
    script = 'text(await tools.exec_command({cmd: "ls"}));'
    api = speaking(called("functions__exec", input=script))
    body = asked(CODE_MODE, stream=False, reasoning={"effort": "medium", "context": "all_turns"})
    del body["tools"], body["instructions"]
    answer = post(api, **body)
    assert set(ignored_of(answer)) == {"prompt_cache_key", "client_metadata", "verbosity", "format", "context"}
    assert {"functions__wait", "clock__sleep"} <= {tool["name"] for tool in shown_tools(api)}
    [item] = answer.json()["output"]
    named = {"type": "custom_tool_call", "namespace": "functions", "name": "exec", "input": script}
    assert {name: item[name] for name in named} == named
    parts = [{"type": "input_text", "text": "Completed."}, {"type": "input_text", "text": "a b.py"}]
    post(api, **{**body, "input": [*CODE_MODE, item, result(item["call_id"], parts, "custom_tool_call_output")]})
    assert called("functions__exec", input=script) in api.prompt
    assert "<tool_response>\nCompleted.\na b.py\n</tool_response>" in api.prompt


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_calls_come_back_as_items_of_their_tools_kind() -> None:
    answer = written(SPOKEN)
    message, patch, opened, search = answer["output"]
    assert message["type"] == "message"
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert "namespace" not in patch
    assert (opened["type"], opened["name"], opened["namespace"]) == ("function_call", "open", "mcp__tracker__")
    assert (search["type"], search["execution"]) == ("tool_search_call", "client")
    assert search["arguments"] == {"query": "logs"}
    assert {item["status"] for item in answer["output"]} == {"completed"}
    assert answer["store"] is False
    assert answer["tools"][11] == FREEFORM
    sent_back = [*FIRST, *answer["output"], *(result(item["call_id"], "ok") for item in answer["output"][1:])]
    api = speaking()
    post(api, **asked(sent_back))
    assert SPOKEN.partition("\n")[2].replace("\\u00fc", "\u00fc") in api.prompt


@pytest.mark.parametrize("num_at_once", [1, 7, 1000])
def test_a_custom_call_is_streamed_as_the_official_client_reads_it(num_at_once: int) -> None:
    client = official(speaking(SPOKEN, num_at_once=num_at_once))
    given = {name: value for name, value in asked().items() if name != "client_metadata"}
    events = list(client.responses.create(**given))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    of_patch = [event for event in events if getattr(event, "output_index", None) == 1]
    assert [(event.type, type(event).__name__) for event in of_patch] == [
        ("response.output_item.added", "ResponseOutputItemAddedEvent"),
        ("response.custom_tool_call_input.delta", "ResponseCustomToolCallInputDeltaEvent"),
        ("response.custom_tool_call_input.done", "ResponseCustomToolCallInputDoneEvent"),
        ("response.output_item.done", "ResponseOutputItemDoneEvent"),
    ]
    [added, delta, done, last] = of_patch
    assert (added.item.input, delta.delta, done.input, last.item.input) == ("", PATCH, PATCH, PATCH)
    assert {delta.item_id, done.item_id} == {added.item.id} == {last.item.id}
    final = events[-1].response
    kinds = [type(item).__name__ for item in final.output[1:]]
    assert kinds == ["ResponseCustomToolCall", "ResponseFunctionToolCall", "ResponseToolSearchCall"]
    assert final.output[1] == last.item


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"input": "a"}, "a"), ({"patch": "a"}, "a"), ({"a": 1, "b": "c"}, '{"a": 1, "b": "c"}'), ({}, "{}")],
)
def test_a_custom_call_with_other_arguments_still_has_an_input_and_one_that_is_made_up_is_a_function_call(
    arguments: dict[str, Any], text: str
) -> None:
    custom, made_up = written(called("apply_patch", **arguments) + called("oh", a=1))["output"]
    assert custom["input"] == text
    assert (made_up["type"], made_up["name"], made_up["arguments"]) == ("function_call", "oh", '{"a": 1}')


# -- what the model may call -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "says", "is_allowed"),
    [
        ("required", OWN, True),
        ("required", "hi", False),
        ("required", called("apply_patch", patch="x"), False),
        (APPLY, OWN, True),
        (APPLY, OTHER, False),
        ({"type": "function", "name": "close", "namespace": "mcp__tracker__"}, CLOSING, True),
        (allowed("auto", APPLY, {"type": "web_search"}), "hi " + OWN, True),
        (allowed("auto", APPLY), OTHER, False),
        (allowed("auto", APPLY), "hi", True),
        (allowed("required", APPLY, {"type": "function", "name": "wait"}), OWN, True),
        (allowed("required", APPLY), "hi", False),
        (allowed("required", APPLY), OTHER, False),
        (allowed("auto", TRACKER), CLOSING, True),
        (allowed("auto", TRACKER), OWN, False),
        (allowed("auto", APPLY, {"type": "tool_search"}), called("tool_search", query="logs"), True),
        (allowed("required", {"type": "tool_search"}), OWN, False),
    ],
)
def test_a_choice_of_tools_is_kept(choice: Any, says: str, is_allowed: bool) -> None:
    api = speaking(says)
    answer = post(api, **asked(stream=False, tool_choice=choice))
    assert "exec_command" in api.prompt
    assert may_end_after(api, says) is is_allowed
    assert answer.json()["tool_choice"] == choice


HOSTED = {"tools": [{"type": "web_search_2025_08_26"}, {"type": "code_interpreter"}]}
CHOICES = allowed("auto", WEB), WEB


@pytest.mark.parametrize("body", [*({"tool_choice": choice} for choice in CHOICES), HOSTED])
def test_tools_that_are_only_hosted_are_none(body: dict[str, Any]) -> None:
    api = speaking(OWN)
    post(api, **asked(stream=False, **body))
    assert "# Tools" not in api.prompt


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"tools": [*TOOLS[-2:], {"type": "apply_patch"}]}, "tools.2", "'function', 'custom'"),
        ({"tools": TOOLS[:1], "tool_choice": WEB}, "tool_choice", "names a 'web_search', but no tool is one; send"),
        ({"input": [*AFTER_CALLS[:6], OOPS, *FIRST]}, "input.6.arguments", "must be a JSON object as a string"),
        ({"input": [*AFTER_CALLS, OOPS, *FIRST]}, "input.14.arguments", "must be a JSON object as a string"),
        ({"input": [*FIRST, HALF, *FIRST]}, "input.3.arguments", "must be a JSON object as a string"),
        ({"input": [*AFTER_CALLS[:6], OOPS]}, "input.4", "calls cannot be continued"),
        ({"input": [*AFTER_CALLS, OOPS | {"call_id": ""}]}, "input.14.call_id", "must not be empty"),
        ({"input": [*FIRST, {"type": "tool_search_output", "call_id": "", "tools": []}]}, "input.3.call_id", "empty"),
        ({"tools": [*TOOLS[-2:], TOOLS[0], TOOLS[0]]}, "tools.3.name", "give each its own name"),
        ({"tools": [{**ISSUES, "tools": [LISTED]}]}, "tools.0.tools.0.parameters", 'must be "object"'),
        ({"input": [*FIRST, later(LISTED)]}, "input.3.tools.0.parameters", 'must be "object"'),
        ({"tool_choice": {"type": "custom", "name": "close"}}, "tool_choice.name", "choose one of tools"),
        ({"tool_choice": allowed("auto", APPLY, OH)}, "tool_choice.tools", "no tool is named 'oh'"),
        ({"tool_choice": allowed("auto", CRM)}, "tool_choice.tools", "no tool is named 'crm__'"),
        ({"tool_choice": allowed("required", {"type": "mcp"})}, "tool_choice.tools", "must not be empty"),
        ({"tool_choice": allowed("required", WAIT)}, "tool_choice.tools", "no tool is named 'wait__'"),
        ({"tools": [{**ISSUES, "name": "n" * 125}]}, "tools.0.tools", "shorten a name"),
        ({"tool_choice": allowed("sometimes", APPLY)}, "tool_choice.mode", "'auto' or 'required'"),
        ({"input": [*FIRST, {"type": "item_reference", "id": "x"}]}, "input.3", "send the item itself"),
        ({"input": [said("user"), {"type": "compaction_trigger"}]}, "input.1", "send one of 'message'"),
        ({"previous_response_id": "r"}, "previous_response_id", "send all of it as input"),
    ],
)
def test_what_would_change_the_text_is_refused_by_its_own_name(body: Any, param: str, words: str) -> None:
    assert refused(speaking().client.post("/v1/responses", json=asked(**body)), param, words).startswith(param)


def test_chats_restrict_their_tools_likewise() -> None:
    api = speaking(OTHER)
    tools = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in TOOLS[:2]]
    wait = {"type": "function", "function": {"name": "write_stdin"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [wait]}}
    assert api.chat(tools=tools, tool_choice=choice).status_code == 200
    assert not may_end_after(api, OTHER)
    assert may_end_after(api, called("write_stdin", session_id=1))
    wait["function"] = {"name": "oh"}
    refused(api.chat(tools=tools, tool_choice=choice), "tool_choice.allowed_tools.tools")
