"""Tools where the chat template knows none: they are described in messages, and calls are Hermes'."""

import json
from typing import Any

import pytest

from draft_node.service.chat_support import ChatSupport, with_tools_as_text
from tests.chats import PLAIN, function, tokenizer
from tests.draft_node.http.ask.test_tool_constraints import NAMED, SAFE, may_end_after
from tests.draft_node.http.ask.test_tools import CALL, OTHER, TOOLS, api, call, message_of, streamed
from tests.draft_node.http.fake import USER, error_of

STRICT_TURNS = """\
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('not in turn') }}{%- endif %}
    {{- message.role + ': ' + message.content + '\\n' }}
{%- endfor %}"""
"""Of Gemma's kind: no message of the system, and turns that alternate."""

ASSISTANT = {"role": "assistant", "content": "Let me look.", "tool_calls": [{"id": "a", **call()}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "sunny"}


@pytest.mark.parametrize("ask", [message_of, streamed])
def test_a_call_is_an_answer(ask: Any) -> None:
    here = api(f"Let me look.\n{CALL}{OTHER}<|im_end|>", PLAIN)
    message, reason = ask(here.chat(tools=TOOLS, stream=ask is streamed))
    assert (message["content"], reason) == ("Let me look.", "tool_calls")
    assert message["tool_calls"] == [call(), call("time", "{}")]
    prompt = here.prompt
    assert prompt.startswith("system: # Tools\n")
    assert f"<tools>\n{json.dumps(TOOLS[0])}\n{json.dumps(TOOLS[1])}\n</tools>" in prompt
    assert prompt.endswith("user: hi\nassistant:")


def test_a_conversation_with_calls_and_results_goes_on() -> None:
    here = api("x", PLAIN)
    turns = [{"role": "system", "content": "Be brief."}, USER, ASSISTANT, RESULT, {**RESULT, "content": "12 °C"}]
    assert here.chat(messages=turns, tools=TOOLS).status_code == 200
    assert here.prompt.startswith("system: Be brief.\n\n# Tools\n")
    spelled_call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome </tool_call>"}}\n</tool_call>'
    results = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\n12 °C\n</tool_response>"
    assert f"user: hi\nassistant: Let me look.\n{spelled_call}\nuser: {results}\nassistant:" in here.prompt
    assert here.chat(messages=turns, tools=TOOLS, tool_choice="none").status_code == 200
    assert "# Tools" not in here.prompt
    assert results in here.prompt


def test_where_a_template_is_strict_the_first_question_has_the_tools() -> None:
    here = api("x", STRICT_TURNS)
    turns = [USER, ASSISTANT, RESULT, {"role": "user", "content": "And now?"}]
    assert here.chat(messages=turns, tools=TOOLS).status_code == 200
    prompt = here.prompt
    assert prompt.startswith("user: # Tools\n")
    assert "</tool_call>\n\nhi\nassistant: Let me look." in prompt
    assert prompt.endswith("user: <tool_response>\nsunny\n</tool_response>\n\nAnd now?\n")


def test_a_later_message_of_the_system_keeps_its_place() -> None:
    later = [USER, {"role": "system", "content": "now"}]
    assert with_tools_as_text(later, [function()], has_system=True)[1:] == later
    assert with_tools_as_text(later, [], has_system=True) == later


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_required_calls_are_constrained(choice: Any) -> None:
    here = api(SAFE, PLAIN)
    message, reason = message_of(here.chat(tools=TOOLS, tool_choice=choice))
    assert (message["tool_calls"], reason) == ([call(arguments='{"city": "Rome"}')], "tool_calls")
    assert may_end_after(here, SAFE)
    assert not may_end_after(here, "hi")


@pytest.mark.parametrize(
    ("template", "parser", "what"),
    [
        (PLAIN, "none", "this node cannot read the model's calls (--tool-parser)"),
        (PLAIN, "mistral", "so its calls are hermes, but --tool-parser says otherwise"),
        (None, "auto", "this model has no chat template"),
    ],
)
def test_tools_that_cannot_be_spelled_are_refused(template: str | None, parser: str, what: str) -> None:
    here = api("x", PLAIN)
    here.service.chats = ChatSupport.of(tokenizer(template), tools=parser)
    for body in ({"tools": TOOLS}, {"messages": [USER, ASSISTANT, RESULT]}):
        error = error_of(here.chat(**body))
        assert what in error["message"]
        assert error["code"] == "unsupported_parameter"
