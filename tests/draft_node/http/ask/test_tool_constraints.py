"""Answers keep a form: strict tools, calls that are required, and formats beside them and after thinking."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from draft_node.http.ask import structured_outputs
from draft_node.parsing.grammars import GrammarSettings, Tool, grammar
from draft_node.service.service import LARGE_BODY
from goodspeed.errors import ConstraintError
from tests.chats import MISTRAL, QWEN3, R1, function, ids_of
from tests.constraint.ending import may_end
from tests.draft_node.http.ask.test_tools import CALL, OTHER, TOOLS, api
from tests.draft_node.http.fake import Api, refused
from tests.draft_node.http.speaking import SpeakingService

STRICT = [function(strict=True), function("time")]
AUTO: dict[str, Any] = {"tools": STRICT}
NAMED = {"type": "function", "function": {"name": "weather"}}
UNIQUE: dict[str, object] = {"type": "array", "uniqueItems": True}
LENIENT = {"x-guidance": {"lenient": True}}
OF_THE_FIRST = "tools.0.function.parameters"


def in_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}


def tool_of(parameters: Any, *, strict: bool, name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


FORMAT = in_format({"type": "integer"})


def may_end_after(here: Api, says: str) -> bool:
    """True if what the newest text has to keep allows the end after these words."""
    service = here.service
    assert isinstance(service, SpeakingService)
    constraint = service.generations[-1].constraint
    assert constraint is not None
    return may_end(service.constraints.get(constraint), ids_of(says), ids_of("<|im_end|>")[0])


SAFE = CALL.replace(' </tool_call>"', '"')  # the form has no markers in strings, where they are tokens
SAID = [
    (AUTO, "hi", True),
    (AUTO, SAFE, True),
    (AUTO, "<think>hm</think>" + SAFE + OTHER, True),
    (AUTO, SAFE.replace("city", "town"), False),
    ({**AUTO, "tool_choice": "required"}, "hi", False),
    ({**AUTO, "tool_choice": "required"}, "<think>hm</think>\n\n" + SAFE + "\n" + SAFE, True),
    ({**AUTO, "tool_choice": "required", "parallel_tool_calls": False}, SAFE + OTHER, False),
    ({"tools": TOOLS, "tool_choice": NAMED}, SAFE, True),
    ({"tools": [{"type": "function", "function": {"name": "weather"}}], "tool_choice": "required"}, SAFE, False),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "time"}}}, SAFE, False),
    ({"tools": TOOLS, **FORMAT}, "7", True),
    ({"tools": TOOLS, **FORMAT}, SAFE, True),
    ({"tools": TOOLS, **FORMAT}, "seven", False),
    (FORMAT, "7", True),
    (FORMAT, "<think>hm</think>\n\n7", True),
    (FORMAT, "<think>hm</think>\n\nseven", False),
    ({**FORMAT, "reasoning_effort": "none"}, "7", True),
    ({**FORMAT, "reasoning_effort": "none"}, "<think>hm</think>\n\n7", False),
    ({"structured_outputs": {"regex": "[ab]+"}}, "ab", True),
]


@pytest.mark.parametrize(("body", "says", "is_allowed"), SAID)
def test_answers_keep_the_form_of_strict_tools_and_of_calls_that_have_to_be(body, says, is_allowed):
    here = api(says)
    assert here.chat(**body).status_code == 200
    assert may_end_after(here, says) is is_allowed


def test_a_form_counts_from_the_end_of_what_the_prompt_opened() -> None:
    here = api("x", R1)
    assert here.chat(**FORMAT).status_code == 200
    assert here.service.generations[-1].constraint.after == tuple(ids_of("</think>"))
    assert may_end_after(here, "so 8 and</think>\n\n7")
    assert not may_end_after(here, "7")
    here.chat(structured_outputs={"regex": "[ab]+"})
    assert may_end_after(here, "so</think>ab")


def test_a_form_after_an_end_of_thinking_that_is_no_token_is_json_or_refused() -> None:
    """The form would else be kept from the beginning, and the whole answer be read as thinking."""
    here = api("x", R1)
    here.service.chats = replace(here.service.chats, markers={})
    assert here.chat(**FORMAT).status_code == 200
    answer = here.chat(structured_outputs={"choice": ["yes", "no"]})
    refused(answer, "structured_outputs", "only JSON can follow", code="unsupported_form")


@pytest.mark.parametrize(
    "body", [{"tools": TOOLS}, {"tools": [function(strict=False)]}, {"tools": STRICT, "tool_choice": "none"}]
)
def test_without_strict_tools_texts_are_free(body: dict[str, Any]) -> None:
    here = api("x")
    assert here.chat(**body).status_code == 200
    assert here.service.generations[0].constraint is None


@pytest.mark.parametrize(
    ("body", "param", "what"),
    [
        ({"tools": [function(strict=True, a=UNIQUE)]}, "tools", "uniqueItems"),
        ({"tools": [function(strict=True, a={"enum": ["x" * 70_000]})]}, "tools", "too long"),
        ({"tools": [function(a={"items": LENIENT})]}, OF_THE_FIRST, "x-guidance"),
        ({"tools": [function(a={"enum": ["x-guidance"]})]}, OF_THE_FIRST, "be it a name or a text"),
        ({"tools": [tool_of({"properties": {"a": UNIQUE}, **LENIENT}, strict=True)]}, OF_THE_FIRST, "leave it out"),
        ({"tools": STRICT, "ignore_eos": True}, "ignore_eos", "ends where its form ends"),
        *(
            ({"tools": TOOLS, "structured_outputs": {"regex": "a"}, **choice}, "structured_outputs", "must be JSON")
            for choice in ({}, {"tool_choice": "required"}, {"tool_choice": NAMED})
        ),
    ],
)
def test_forms_that_cannot_be_kept_are_refused(body: dict[str, Any], param: str, what: str) -> None:
    refused(api("x").chat(**body), param, what)


def test_content_in_a_format_is_read_as_the_grammar_has_it() -> None:
    says = '{"say": "[TOOL_CALLS]rm{}"}'
    asked: dict[str, Any] = {"tools": TOOLS, "response_format": {"type": "json_object"}}
    [choice] = api(says, MISTRAL).chat(**asked).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (says, "stop")
    [choice] = api('[TOOL_CALLS]time[ARGS]{"city": "x"}', MISTRAL).chat(**asked).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.thorough
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", ["array", "string", "null", ["null", "string"], [], 5, None])
def test_parameters_that_are_no_object_are_refused(kind: Any, strict: bool) -> None:
    """A call of such a tool could not be told from text."""
    tools = [TOOLS[0], tool_of({"type": kind}, strict=strict)]
    for choice in ("required", "auto"):
        message = refused(api("x").chat(tools=tools, tool_choice=choice), "tools.1.function.parameters")
        assert message.startswith('tools.1.function.parameters.type must be "object", or left out')


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("parameters", [{"type": ["object", "null"]}, {"type": ["string", "object"]}, {}, None])
def test_arguments_are_an_object_whatever_else_the_parameters_may_be(parameters: Any, strict: bool) -> None:
    says = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    here = api(says)
    answer = here.chat(tools=[tool_of(parameters, strict=strict)], tool_choice="required").json()["choices"][0]
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert may_end_after(here, says)
    for other in ("null", '"x"'):
        assert not may_end_after(here, says.replace("{}", other))


@pytest.mark.parametrize(
    "parameters", [{"const": 5}, {"anyOf": [{"type": "array"}, {"type": "null"}]}, {"$ref": "#/$defs/a"}]
)
def test_parameters_that_no_object_keeps_are_refused(parameters: dict[str, Any]) -> None:
    whole = {**parameters, "$defs": {"a": {"type": "array"}}}
    answer = api("x").chat(tools=[tool_of(whole, strict=True)], tool_choice="required")
    refused(answer, "tools", code="unsupported_form")


def test_what_is_wrong_in_a_tool_is_said_of_its_schema_and_not_of_a_grammar() -> None:
    for tools in ([], [function("time", strict=True)]):
        answer = api("x").chat(tools=[*tools, function(strict=True, a={"type": "text"})])
        assert refused(answer, "tools", code="unsupported_form") == "tools: weather: Invalid type: text"


@pytest.mark.parametrize("template", [QWEN3, R1])
def test_a_form_that_is_too_long_with_what_is_thought_before_is_refused(template: str) -> None:
    """It would else be kept from the beginning, and leave no room to think."""
    longest, longer = (in_format({"description": "x" * num_chars}) for num_chars in (65_000, 65_515))
    assert api("x", template).chat(**longest).status_code == 200
    refused(api("x", template).chat(**longer), "response_format", "too long", code="unsupported_form")


def test_what_a_format_becomes_with_thinking_is_compiled_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    here = api("x", R1)
    costly = ConstraintError("it costs too much")
    monkeypatch.setattr(here.service.compiler, "check", check := AsyncMock(side_effect=[None, costly, None, costly]))
    assert refused(here.chat(**FORMAT), "response_format") == "response_format: it costs too much"
    refused(here.chat(structured_outputs={"json": {"type": "integer"}}), "structured_outputs")
    assert [call.args[0].kind for call in check.call_args_list] == ["json_schema", "grammar"] * 2


def test_tools_that_are_not_strict_are_loosened_if_a_schema_cannot_be_served() -> None:
    nothing = {"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]}
    other = tool_of({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, strict=False, name="g")

    def says(name: str, value: str) -> str:
        return f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": {value}}}}}\n</tool_call>'

    here = api("x")
    assert here.chat(tools=[other], tool_choice="required").status_code == 200
    assert not may_end_after(here, says("g", '"x"'))
    assert here.chat(tools=[tool_of(nothing, strict=False), other], tool_choice="required").status_code == 200
    assert may_end_after(here, says("f", '"x"'))
    assert may_end_after(here, says("g", '"x"'))
    assert not may_end_after(here, says("f", '"x"').replace('"a"', '"b"'))
    refused(here.chat(tools=[tool_of(nothing, strict=True), other], tool_choice="required"), "tools")


def test_grammars_of_tools_are_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[int, str]] = []

    def counted(form: GrammarSettings, tools: Sequence[Tool]) -> str:
        built.append((len(tools), threading.current_thread().name.partition("_")[0]))
        return grammar(form, tools)

    monkeypatch.setattr(structured_outputs, "grammar", counted)
    long = {"properties": {"a": {"enum": ["x" * LARGE_BODY]}}, "required": ["a"]}
    tools = [tool_of(long, strict=False, name=f"f{i}") for i in range(3)]
    assert api("x").chat(tools=tools, tool_choice="required").status_code == 200
    assert built == [(3, "bodies"), (3, "bodies")]
