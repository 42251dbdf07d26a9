"""Answers drawn at random under the grammars of calls: all of them are read, and keep their tools' schemas."""

import json
from typing import Any

import numpy as np
import pytest
from jsonschema import validate

from draft_node.parsing.formats import NO_FORMATS, THINKING, TOOLS, Formats
from draft_node.parsing.grammars import Form, Opened, Tool, grammar
from draft_node.parsing.parser import Parser
from draft_node.parsing.parts import Call, Content, Part, Thinking, joined
from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.matcher import Matcher
from goodspeed.wire.generation import Constraint
from tests.chats import ids_of, tokenizer, vocabulary
from tests.draft_node.parsing.texts import ALL

TOKENIZER = tokenizer()
IDS = {token.content: token_id for token_id, token in TOKENIZER.added_tokens_decoder.items()}
EOS = IDS["<|im_end|>"]
GRAMMARS = Grammars(vocabulary())
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "when": {"enum": ["now", "then"]},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["n", "place"],
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}},
}
LOOSE = {
    "type": "object",
    "properties": {"b": {"type": "boolean"}, "c": {"type": "array", "maxItems": 0, "uniqueItems": True}},
    "required": ["b"],
}
TOOLSET = [Tool("weather", SCHEMA, strict=True), Tool("time", LOOSE)]
SCHEMAS = {tool.name: tool.schema for tool in TOOLSET}
ENDS = [token for text in ('"', "}", '"}', "]", "\n") for token in ids_of(text)]


(BRACE,) = ids_of("{")


def drawn(form: Form, seed: int, most: int = 400) -> list[int] | None:
    """Tokens that the grammar allows, drawn at random, such that texts come to their end; None where one does not."""
    rng = np.random.default_rng(seed)
    matcher = Matcher(GRAMMARS.get(Constraint("grammar", grammar(form, TOOLSET))), (), (EOS,))
    output = list[int]()
    for _ in range(most):
        row = matcher.allowed(output)[0].view(np.uint32)
        allowed = [token for token in range(len(row) * 32) if row[token // 32] >> (token % 32) & 1]
        assert allowed
        ending = [token for token in allowed if token in ENDS or token == EOS or token in IDS.values()]
        if not output and BRACE in allowed:
            ending = [BRACE]  # a call that no marker begins
        token = int(rng.choice(ending if ending and rng.random() < 0.8 else allowed))
        if token == EOS:
            return output
        output.append(token)
    return None


def parts_of(form: Form, tokens: list[int]) -> list[Part]:
    text = TOKENIZER.decode(tokens)
    parser = Parser(form.formats, SCHEMAS, is_thinking=form.opened == "open")
    before = (
        []
        if not form.after
        else parser.push("x</think>" if form.formats.thinking == THINKING["think"] else "x[/THINK]")
    )
    return joined([*before, *parser.push(text), *parser.end()])


@pytest.mark.parametrize("opened", ["open", "may", "closed"])
@pytest.mark.parametrize("one_call", [True, False])
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
def test_a_call_that_has_to_be_is_there_and_valid(formats: Formats, one_call: bool, opened: Opened) -> None:
    form = Form(formats, IDS, opened, is_forced=True, one_call=one_call)
    num_complete = 0
    for seed in range(4):
        tokens = drawn(form, seed)
        if tokens is None:
            continue
        num_complete += 1
        parts = parts_of(form, tokens)
        calls = [part for part in parts if isinstance(part, Call)]
        assert calls
        assert len(calls) == 1 or not one_call
        assert not [part for part in parts if isinstance(part, Content)]
        for call in calls:
            validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert num_complete


@pytest.mark.parametrize("opened", ["may", "closed"])
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
def test_calls_that_need_not_be_are_valid_where_they_are(formats: Formats, opened: Opened) -> None:
    form = Form(formats, IDS, opened)
    num_calls = 0
    for seed in range(8):
        for call in parts_of(form, drawn(form, seed) or []):
            if isinstance(call, Call):
                num_calls += 1
                if call.name == "weather":
                    validate(json.loads(call.arguments), SCHEMA)
    assert num_calls


@pytest.mark.parametrize(
    "text",
    [
        "Hello, <b>you</b>.",
        '<think>\nhm { "\n</think>\n\nLook.\n<tool_call>\n{"name": "weather", "arguments": {"n": 1, "place": {}}}\n'
        "</tool_call>\nThen.",
        '<tool_call>\n{"name": "time", "arguments": {"any": [1]}}\n</tool_call>',
    ],
)
def test_text_and_calls_that_are_allowed(text: str) -> None:
    matcher = Matcher(
        GRAMMARS.get(Constraint("grammar", grammar(Form(ALL["hermes"], IDS, "may"), TOOLSET))), (), (EOS,)
    )
    assert matcher.may_end(ids_of(text))


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "other"',
        '<tool_call>\n{"name": "weather", "arguments": {"n": "',
        '<tool_call>\n{"name": "weather", "arguments": {"when": "now", "n',
        "<tool_call>f",
    ],
)
def test_calls_that_are_not(text: str) -> None:
    matcher = Matcher(GRAMMARS.get(Constraint("grammar", grammar(Form(ALL["hermes"], IDS), TOOLSET))), (), (EOS,))
    matcher.allowed(ids_of(text))
    assert matcher.problem


def test_text_in_a_form_of_its_own_beside_calls() -> None:
    form = Form(ALL["hermes"], IDS, content={"type": "object", "properties": {"a": {"type": "integer"}}})
    compiled = GRAMMARS.get(Constraint("grammar", grammar(form, TOOLSET)))
    assert Matcher(compiled, (), (EOS,)).may_end(ids_of('{"a": 1}'))
    call = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
    assert Matcher(compiled, (), (EOS,)).may_end(ids_of(call))
    assert not Matcher(compiled, (), (EOS,)).may_end(ids_of("so"))


def test_bare_text_of_qwen3_coder_ends_at_its_marker() -> None:
    tools = [Tool("f", {"properties": {"code": {"type": "string"}}, "required": ["code"]})]
    form = Form(ALL["qwen3_coder"], IDS, is_forced=True)
    compiled = GRAMMARS.get(Constraint("grammar", grammar(form, tools)))
    text = "<tool_call>\n<function=f>\n<parameter=code>\nif a < b:\n\n</parameter>\n</function>\n</tool_call>"
    assert Matcher(compiled, (), (EOS,)).may_end(ids_of(text))


def test_markers_that_are_no_tokens_are_text() -> None:
    form = Form(Formats(THINKING["think"], TOOLS["hermes"]), {}, "may")
    source = grammar(form, TOOLSET)
    assert '"<tool_call>"' in source
    assert "[lazy]" in source
    GRAMMARS.get(Constraint("grammar", source))
    assert Form(form.formats, {}, "open").after == ()
    assert Form(ALL["hermes"], IDS, "open").after == (IDS["</think>"],)


def test_no_form_no_grammar() -> None:
    with pytest.raises(ValueError, match="unknown form"):
        grammar(Form(NO_FORMATS), TOOLSET)


def test_kinds_of_parts_are_told_apart() -> None:
    form = Form(ALL["hermes"], IDS, "open", is_forced=True)
    tokens = drawn(form, 1)
    assert tokens is not None
    assert isinstance(parts_of(form, tokens)[0], Thinking)
