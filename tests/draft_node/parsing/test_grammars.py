"""Answers drawn at random under the grammars of calls: all of them are read, and keep their tools' schemas."""

import json
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from jsonschema import validate

from draft_node.parsing.formats import Call, Content, Formats, ParsedPart, joined
from draft_node.parsing.grammars import MAX_CHARS, GrammarSettings, ReasoningState, Tool, grammar
from draft_node.parsing.parser import Parser, ParserSettings
from draft_node.parsing.tool_schemas import choices_of
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.grammars import to_grammar
from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.references import Resolver
from goodspeed.engine.tokenizing.text_stream import TextStream
from goodspeed.errors import ConstraintError
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint
from tests.chats import ids_of, tokenizer, vocabulary
from tests.constraint.ending import may_end
from tests.draft_node.parsing.texts import ALL

TOKENIZER = tokenizer()
IDS = {token.content: token_id for token_id, token in TOKENIZER.added_tokens_decoder.items()}
EOS = IDS["<|im_end|>"]
GRAMMARS = Constraints(vocabulary())
BOOLEAN, INTEGER = {"type": "boolean"}, {"type": "integer"}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
NUMBER = INTEGER | {"minimum": 0, "maximum": 99}
SCHEMA = CLOSED | {
    "properties": {"n": NUMBER, "when": {"enum": ["now", "then"]}, "place": {"$ref": "#/$defs/Place"}},
    "required": ["n", "place"],
    "$defs": {"Place": CLOSED | {"properties": {"x": BOOLEAN}}},
}
A_TEXT = CLOSED | {"properties": {"a": {"type": "string"}}}
EMPTY = {"type": "array", "maxItems": 0, "uniqueItems": True}
LOOSE = {"type": "object", "properties": {"b": BOOLEAN, "c": EMPTY}, "required": ["b"]}
TOOLSET = [Tool("weather", SCHEMA, strict=True), Tool("time", LOOSE)]
SCHEMAS = {tool.name: tool.schema for tool in TOOLSET}
ENDS = [token for text in ('"', "}", '"}', "]", "\n") for token in ids_of(text)]
[BRACE] = ids_of("{")
WRONG = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"n": "x"}}\n</tool_call>',
    "qwen3_coder": "<function=weather>\n<parameter=n>\nx\n</parameter>\n</function>",
    "llama3_json": '<|python_tag|>{"name": "weather", "parameters": {"n": "x"}}',
    "mistral": '[TOOL_CALLS]weather[ARGS]{"n": "x"}',
}
"""Calls that keep no schema, by markers that some models write as ordinary tokens."""
NEXT = "</parameter>\n<parameter=n>\nx"
UNREADABLE = ("a>b", "a\nb", " a", "a ", "")
OTHER = CLOSED | {"properties": {"s": BOOLEAN}}
NOWHERE = {"$ref": "#/none"}


def compiled(form: GrammarSettings, *tools: Tool) -> Matcher:
    """The grammar of calls of these tools, or of TOOLSET's."""
    return GRAMMARS.get(Constraint("grammar", grammar(form, tools or TOOLSET)))


def forced(name: str, **options: Any) -> GrammarSettings:
    """A call in this format has to be there."""
    return GrammarSettings(ALL[name], IDS, is_forced=True, **options)


def is_whole(matcher: Matcher, text: str) -> bool:
    """True if the text may end as it is."""
    return may_end(matcher, ids_of(text), EOS)


def allowed_after(matcher: Matcher, output: list[int]) -> list[int]:
    row = matcher.allowed(output)[0].view(np.uint8)
    return [int(token) for token in np.flatnonzero(np.unpackbits(row, bitorder="little"))]


def drawn(form: GrammarSettings, seed: int, most: int = 400) -> list[int] | None:
    """Tokens that the grammar allows, drawn at random, such that texts come to their end; None where one does not."""
    rng, matcher, output = np.random.default_rng(seed), compiled(form), list[int]()
    for _ in range(most):
        allowed = allowed_after(matcher, output)
        assert allowed
        ending = [token for token in allowed if token in ENDS or token == EOS or token in IDS.values()]
        if not output and BRACE in allowed:
            ending = [BRACE]  # a call that no marker begins
        token = int(rng.choice(ending if ending and rng.random() < 0.8 else allowed))
        if token == EOS:
            return output
        output.append(token)
    return None


def parser_of(form: GrammarSettings, schemas: dict[str, Any]) -> Parser:
    formats = form.formats.under_grammar(has_text=form.content is None)
    return Parser(ParserSettings(formats, schemas=schemas), is_thinking=form.opened == "open")


def spelled(text: str) -> list[int]:
    """Token ids of a text without the markers' own."""
    return [token for char in text for token in ids_of(char)]


def parts_of(form: GrammarSettings, tokens: list[int]) -> list[ParsedPart]:
    """Returns the parts that the tokens are read as: thinking ends at its token, if there is one."""
    parser, stream = parser_of(form, SCHEMAS), TextStream(TOKENIZER, ())
    thinking = form.formats.thinking
    closes = form.ids.get(thinking.closes) if thinking is not None else None
    parts = parser.push(f"x{thinking.closes}") if form.after and thinking is not None else []
    for token in tokens:
        text = stream.push([token])
        parts += parser.think(text) if parser.is_thinking and closes not in (None, token) else parser.push(text)
    return joined([*parts, *parser.push(stream.end()), *parser.end()])


@pytest.mark.thorough
@pytest.mark.parametrize("opened", ["open", "may", "closed"])
@pytest.mark.parametrize("one_call", [True, False])
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
def test_a_call_that_has_to_be_is_there_and_valid(formats: Formats, one_call: bool, opened: ReasoningState) -> None:
    form = GrammarSettings(formats, IDS, opened, is_forced=True, one_call=one_call)
    outputs = [tokens for seed in range(4) if (tokens := drawn(form, seed)) is not None]
    assert outputs
    for tokens in outputs:
        parts = parts_of(form, tokens)
        calls = [part for part in parts if isinstance(part, Call)]
        assert len(calls) == 1 or (calls and not one_call)
        assert not [part for part in parts if isinstance(part, Content)]
        for call in calls:
            validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize(
    ("stops", "one_call", "allowed"),
    [(("\n\n", "User:"), False, {"", "\n\n", "User:"}), ((), False, {""}), (("\n\n",), True, {""})],
)
def test_calls_that_have_to_be_end_with_the_targets_stop_strings_too(stops, one_call, allowed):
    matcher = compiled(forced("hermes", one_call=one_call, stops=stops))
    call = written_call("hermes", "time", {"b": True})
    for text in [call] if one_call else [call, f"{call}\n{call}"]:
        ends = ("", "\n", "\n\n", "\n\n\n", "User:", "\n\nUser:", "so")
        assert {end for end in ends if is_whole(matcher, text + end)} == allowed
    assert not is_whole(matcher, f"{call}\n\n{call}")


@pytest.mark.parametrize("opened", ["may", "closed"])
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
def test_calls_that_need_not_be_are_valid_where_they_are(formats: Formats, opened: ReasoningState) -> None:
    form = GrammarSettings(formats, IDS, opened)
    parts = [part for seed in range(8) for part in parts_of(form, drawn(form, seed) or [])]
    calls = [part for part in parts if isinstance(part, Call)]
    assert calls
    for call in calls:
        if call.name == "weather":
            validate(json.loads(call.arguments), SCHEMA)


@pytest.mark.parametrize("ids", [IDS, {}], ids=["tokens", "text"])
@pytest.mark.parametrize("name", WRONG)
def test_text_spells_no_marker_that_the_parser_would_take(name: str, ids: dict[str, int]) -> None:
    form = GrammarSettings(ALL[name], ids)
    for text in (WRONG[name], f"Sure.\n{WRONG[name]}"):
        assert any(isinstance(part, Call) for part in parts_of(form, spelled(text)))
        assert not may_end(compiled(form), spelled(text), EOS)
    for text in ("a <tool [TOOL <function <|python", ""):
        assert may_end(compiled(form), spelled(text), EOS)


@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("end", ["", "\n</tool_call>"])
def test_qwen3_coder_may_leave_out_the_first_marker(end: str, is_followed: bool) -> None:
    form = GrammarSettings(ALL["qwen3_coder"], IDS)
    text = f"Sure.\n<function=time>\n<parameter=b>\ntrue\n</parameter>\n</function>{end}"
    text += f" and\n{written_call('qwen3_coder', 'time', {'b': False})}" if is_followed else ""
    assert is_whole(compiled(form), text)
    calls = [part.arguments for part in parts_of(form, ids_of(text)) if isinstance(part, Call)]
    assert calls == ['{"b": true}', *['{"b": false}'] * is_followed]


def test_thinking_ends_at_its_token_for_grammar_and_parser() -> None:
    form = GrammarSettings(ALL["hermes"], IDS, "may", content={"type": "integer"})
    for thought in ("the tag </thin", "the tag </think> does not end it"):
        assert may_end(compiled(form), [IDS["<think>"], *spelled(thought), IDS["</think>"], *ids_of("7")], EOS)


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        ({}, True),
        ({"type": "object"}, True),
        ({"type": ["object", "null"], "properties": {"city": {}}}, True),
        ({"properties": {"name": {}, "parameters": {}}, "additionalProperties": False}, True),
        ({"patternProperties": {".": {}}, "additionalProperties": False}, True),
        ({"properties": {"name": {}, "city": {}}, "additionalProperties": False}, False),
        ({"additionalProperties": False}, False),
        ({"type": "array"}, False),
    ],
)
def test_content_that_may_be_a_strict_call_is_refused_where_calls_have_no_marker(content, is_refused):
    form = GrammarSettings(ALL["llama3_json"], IDS, content=content)
    assert grammar(form, [Tool(tool.name, tool.schema) for tool in TOOLSET])
    assert grammar(forced("llama3_json", content=content), TOOLSET)
    with pytest.raises(ValueError, match="beside strict tools") if is_refused else nullcontext():
        assert grammar(form, TOOLSET)


def test_blanks_before_a_call_without_a_marker_are_those_of_the_parser() -> None:
    matcher = compiled(GrammarSettings(ALL["llama3_json"], IDS))
    call = WRONG["llama3_json"].removeprefix("<|python_tag|>")
    for blank in filter(str.isspace, map(chr, range(0x110000))):
        assert not is_whole(matcher, blank + call)
        assert is_whole(matcher, f"{blank}x {call}")


HOSTILE = [
    *(marker for formats in ALL.values() for marker in formats.markers),
    *("<function=rm>", "<function=weather>\n<parameter=n>\n", "</function>", "</parameter>\n<parameter=n>\nx"),
    *('{"name": "rm", "arguments": {}}', '{"name": "weather", "parameters": {"n": "', "[ARGS]{"),
    *("rm", '"}', "\t", "\u3000", "\n", "a"),
]


def hostile(form: GrammarSettings, seed: int) -> list[int] | None:
    """Tokens that the grammar allows, which spell markers and calls wherever they can; None where they do not end."""
    rng, matcher, output = np.random.default_rng(seed), compiled(form), list[int]()
    while len(output) < 400:
        allowed = allowed_after(matcher, output)
        if len(output) > 150 or rng.random() < 0.05:
            if EOS in allowed:
                return output
            ending = [token for token in (*ENDS, *IDS.values()) if token in allowed]
            text = [int(rng.choice(ending))] if ending else allowed[:1]
        else:
            text = spelled(str(rng.choice(HOSTILE)))
        for token in text:
            if token not in allowed_after(matcher, output):
                break
            output.append(token)
    return None


@pytest.mark.parametrize("content", [None, A_TEXT], ids=["free", "JSON"])
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
def test_no_spelling_makes_a_call_that_the_grammar_does_not_know(formats: Formats, content: Any) -> None:
    form = GrammarSettings(formats, IDS, "may" if formats.thinking is not None else "closed", content=content)
    outputs = [output for seed in range(4) if (output := hostile(form, seed)) is not None]
    assert outputs
    for output in outputs:
        parts = parts_of(form, output)
        calls = [part for part in parts if isinstance(part, Call)]
        for call in calls:
            assert call.name in SCHEMAS
            if call.name == "weather":
                validate(json.loads(call.arguments), SCHEMA)
        if content is not None and not calls:
            validate(json.loads("".join(part.text for part in parts if isinstance(part, Content))), content)


@pytest.mark.parametrize("content", [None, {"type": "integer"}])
@pytest.mark.parametrize("opened", ["open", "may", "closed"])
@pytest.mark.parametrize("name", ALL)
def test_what_a_grammar_forces_is_known_to_be_short(name: str, opened: ReasoningState, content: Any) -> None:
    """Else its tokens without an alternative would not be drafted."""
    source = grammar(GrammarSettings(ALL[name], {}, opened, content=content), TOOLSET)
    assert "no_forcing" not in to_grammar(Constraint("grammar", source), {})


# -- Qwen3-Coder: values without quotes --------------------------------------------------------------------------------

CODER = forced("qwen3_coder")


def called(schema: dict[str, Any], **written: str) -> dict[str, Any] | None:
    """The arguments of a call with these parameters, as they are read; None where the grammar does not allow it."""
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in written.items())
    text = f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>"
    if not is_whole(compiled(CODER, Tool("f", schema, strict=True)), text):
        return None
    parser = parser_of(CODER, {"f": schema})
    parts = joined([*parser.push(text), *parser.end()])
    [call] = [part for part in parts if isinstance(part, Call)]
    arguments: dict[str, Any] = json.loads(call.arguments)
    return arguments


@pytest.mark.parametrize(
    ("wanted", "written", "value"),
    [
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": [1, 2]}, "3", None),
        ({"const": 5}, "5", 5),
        ({"const": 5}, "five", None),
        ({"enum": ["a", 1, True]}, "a", "a"),
        ({"enum": ["a", 1, True]}, "1", 1),
        ({"enum": ["a", 1, True]}, "true", True),
        ({"enum": ["a", 1, True]}, "b", None),
        ({"enum": ["1", 2]}, "1", "1"),
        ({"type": "string", "enum": ["a", 1]}, "1", None),
        ({"type": "number", "enum": [1, 2.5]}, "1", 1),
        ({"$ref": "#/$defs/Colour", "description": "x"}, "red", "red"),
        ({"$ref": "#/$defs/Colour"}, "blue", None),
        ({"anyOf": [{"enum": [1]}, {"const": True}]}, "2", None),
        ({"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}, "b", "b"),
        ({"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}, "c", None),
        ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"const": "blue"}]}, "blue", "blue"),
        ({"allOf": [{"$ref": "#/$defs/Colour"}]}, "blue", None),
    ],
)
def test_listed_values_are_kept_and_read_again(wanted: Any, written: str, value: Any) -> None:
    schema = {"properties": {"p": wanted}, "required": ["p"], "$defs": {"Colour": {"enum": ["red", "green"]}}}
    found = called(schema, p=written)
    assert found == (None if value is None else {"p": value})
    if found is not None:
        validate(found, schema)


def test_null_is_one_of_the_listed_values() -> None:
    schema = {"properties": {"p": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}}}
    assert called(schema, p="null") == {"p": None}


def test_a_value_may_be_described_twice() -> None:
    schema = {
        "properties": {"p": {"type": "string"}},
        "allOf": [{"properties": {"p": {"const": "x"}}, "required": ["p"]}],
    }
    assert (called(schema, p="x"), called(schema, p="y")) == ({"p": "x"}, None)


@pytest.mark.parametrize("kind", ["anyOf", "oneOf", "allOf"])
def test_values_that_are_listed_by_many_references_are_not_collected(kind: str) -> None:
    """Each of 64 members has 64, each of which has 64, whose enumeration has 1,000."""
    levels = {f"l{n}": {kind: [{"$ref": f"#/$defs/l{n + 1}"}] * 64} for n in range(3)}
    schema = {
        "properties": {"p": {"$ref": "#/$defs/l0"}},
        "$defs": levels | {"l3": {"enum": [str(n) for n in range(1000)]}},
    }
    found = choices_of({"$ref": "#/$defs/l0"}, Resolver(schema))
    assert found is None or len(found) == 1000


OF_X = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/A", "definitions": {"A": OF_X}},
        {"type": "object", "allOf": [True, OF_X]},
        {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": OF_X}},
    ],
)
def test_parameters_are_found_behind_references_and_all_of(schema: dict[str, Any]) -> None:
    assert (called(schema, x="1"), called(schema, x="a"), called(schema)) == ({"x": 1}, None, None)


@pytest.mark.parametrize("said", [f"a{NEXT}", "\n</parameter>", f"{NEXT}\n", "</function>", "", "\n\n"])
def test_a_value_has_nothing_that_the_parser_takes_for_other_parameters(said: str) -> None:
    listed = {"type": "array", "items": {"type": "string"}}
    schema = {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "l": listed}, "required": ["n", "s"]}
    assert called(schema, n="1", s=said) in (None, {"n": 1, "s": said})
    value = json.dumps([f"</parameter><parameter=n>{said}</parameter>"])
    assert called(schema, n="1", s="a</parameter>", l=value) == {"n": 1, "s": "a</parameter>", "l": json.loads(value)}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        *(({"properties": {key: {}, "n": {}}}, "of f cannot be called") for key in UNREADABLE),
        *(
            ({"properties": {"a": {}}, "required": ["a", name]}, "of f is required, but not one of its properties")
            for name in ("b", ["b"], {"b": 1}, None)
        ),
        ({"properties": {"a": {"enum": ["</parameter>"]}}}, "enum of f"),
        (
            {"properties": {"a": {}}, "not": {"required": ["a"]}},
            "of f have 'not', which this model's calls cannot keep",
        ),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{}]}}}, "of f have 'anyOf'"),
        ({"$ref": "#/$defs/Missing"}, "Missing"),
    ],
)
def test_names_and_values_that_could_not_be_read_again_are_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        grammar(CODER, [Tool("f", schema, strict=True)])


@pytest.mark.parametrize("key", UNREADABLE)
def test_names_that_could_not_be_read_again_are_left_out_of_tools_that_are_not_strict(key: str) -> None:
    schema = {"properties": {key: {"type": "integer"}, "n": {"type": "integer"}}}
    loose = grammar(CODER, [Tool("f", schema), Tool("g", {}, strict=True)])
    assert "<parameter=n>" in loose
    assert loose.count("<parameter=") == 1


TREE = CLOSED | {"properties": {"n": INTEGER, "next": {"$ref": "#"}}, "required": ["n"]}
A_AND_B = {"properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}}, "required": ["b"]}
REFERRING: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "the whole": (TREE, {"n": 1, "next": {"n": 2, "next": {"n": 3}}}, {"n": 1, "next": {"next": {"n": 2}}}),
    "another property": (A_AND_B, {"b": 1}, {"b": {}}),
    "a definition within one": (
        {
            "properties": {"a": {"$ref": "#/definitions/x/$defs/y"}},
            "definitions": {"x": {"type": "null", "$defs": {"y": INTEGER}}},
        },
        {"a": 1},
        {"a": None},
    ),
    "a property named so": (
        {
            "properties": {"$ref": INTEGER, "c": {"const": NOWHERE}, "d": {"enum": [{"$ref": 1}]}},
            "required": ["$ref", "c", "d"],
            "default": NOWHERE,
            "examples": [NOWHERE],
        },
        {"$ref": 1, "c": NOWHERE, "d": {"$ref": 1}},
        {"$ref": 1, "c": {}, "d": {"$ref": 1}},
    ),
    "one with more beside it": (
        {
            "properties": {"a": {"$ref": "#/$defs/x", "properties": {"m": {"type": "integer"}}, "required": ["m"]}},
            "$defs": {"x": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        },
        {"a": {"n": 2, "m": 1}},
        {"a": {"n": 2}},
    ),
}


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "llama3_json", "mistral"])
@pytest.mark.parametrize(("schema", "right", "wrong"), REFERRING.values(), ids=REFERRING)
def test_a_reference_means_the_same_in_every_format(name, schema, right, wrong):
    """Also beside another tool with definitions of the same name."""
    other = Tool("g", {**OTHER, "$defs": {"x": {"type": "null"}}}, strict=True)
    matcher = compiled(forced(name), Tool("f", schema, strict=True), other)
    validate(right, schema)
    ordered = [{key: each[key] for key in (*schema["properties"], *each) if key in each} for each in (right, wrong)]
    assert [is_whole(matcher, written_call(name, "f", each)) for each in ordered] == [True, False]
    assert is_whole(matcher, written_call(name, "g", {"s": True}))


def written_call(name: str, tool: str, arguments: dict[str, Any]) -> str:
    said = json.dumps(arguments)
    match name:
        case "hermes":
            return f'<tool_call>\n{{"name": "{tool}", "arguments": {said}}}\n</tool_call>'
        case "llama3_json":
            return f'{{"name": "{tool}", "parameters": {said}}}'
        case "mistral":
            return f"[TOOL_CALLS]{tool}[ARGS]{said}"
    parameters = [f"<parameter={key}>\n{json.dumps(value)}\n</parameter>\n" for key, value in arguments.items()]
    return f"<tool_call>\n<function={tool}>\n{''.join(parameters)}</function>\n</tool_call>"


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize(
    ("target", "why"),
    [("https://example.com/x", "leads out of the schema"), ("#/$defs/y", "does not exist"), ("#y", "does not exist")],
)
def test_a_reference_that_leads_nowhere_is_refused_but_for_tools_that_are_not_strict(name, target, why):
    schema = {"properties": {"a": {"type": "array", "items": {"$ref": target}}}, "required": ["a"]}
    with pytest.raises(ValueError, match=why):
        grammar(forced(name), [Tool("f", schema, strict=True)])
    matcher = compiled(forced(name), Tool("f", schema))
    assert is_whole(matcher, written_call(name, "f", {"a": [1, "x"]}))
    assert not is_whole(matcher, written_call(name, "f", {"a": "x"}))


def test_many_references_to_nested_parts_do_not_copy_them() -> None:
    part: dict[str, Any] = {"type": "integer"}
    for _ in range(30):
        part = {"type": "object", "properties": {"p": part}}
    pointers = ["#" + "/properties/p" * depth for depth in range(31)]
    schema = {**part, "properties": {**part["properties"], "all": {"anyOf": [{"$ref": each} for each in pointers]}}}
    assert len(grammar(forced("hermes"), [Tool("f", schema)])) < 2 * len(json.dumps(schema)) + 4000


WRITES_NOTHING = {
    "look-around": {"type": "string", "pattern": "^(?!a).*$"},
    "an unknown format": {"type": "string", "format": "smell"},
    "unique items": {"type": "array", "uniqueItems": True},
    "a number that is no float": {"const": 9007199254740993},
    "members that overlap": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
}


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize("part", WRITES_NOTHING.values(), ids=WRITES_NOTHING)
def test_what_a_tool_that_is_not_strict_cannot_have_is_left_out_of_it_alone(name: str, part: dict[str, Any]) -> None:
    schema = {"properties": {"l": {"type": "array", "items": part}, "n": {"type": "integer"}}, "required": ["l", "n"]}
    with pytest.raises(ConstraintError):
        compiled(forced(name), Tool("f", schema, strict=True))
    matcher = compiled(forced(name), Tool("f", schema), Tool("g", OTHER, strict=True))
    for arguments, is_allowed in (({"l": [], "n": 1}, True), ({"l": [], "n": "x"}, False), ({"l": 1, "n": 1}, False)):
        assert is_whole(matcher, written_call(name, "f", arguments)) is is_allowed
    assert not is_whole(matcher, written_call(name, "g", {"s": 1}))


def test_tools_that_are_not_strict_have_any_parameters_beside_strict_ones() -> None:
    """As in the other formats; so their schemas cannot refuse anything."""
    tools = [Tool("f", {"properties": {"a": {"type": "array", "uniqueItems": True}}}), Tool("g", OTHER, strict=True)]
    matcher = compiled(GrammarSettings(ALL["qwen3_coder"], IDS), *tools)
    for arguments in ({"a": 1}, {"b c": "x"}, {}):
        assert is_whole(matcher, f"Look.\n{written_call('qwen3_coder', 'f', arguments)}")
    for given, is_allowed in (({"s": True}, True), ({"s": 1}, False), ({"a": True}, False)):
        assert is_whole(matcher, written_call("qwen3_coder", "g", given)) is is_allowed


@pytest.mark.parametrize("name", ["qwen3_coder", "hermes"])
def test_a_grammar_is_given_up_as_soon_as_it_is_too_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draft_node.parsing.grammars._dumped", dumped := Mock(side_effect=json.dumps))
    parameters = {f"p{i}": {"$ref": "#/$defs/A"} for i in range(1000)}
    schema = {"properties": parameters, "$defs": {"A": {"type": "integer", "enum": [*range(4000)]}}}
    with pytest.raises(ValueError, match="more than 65536 characters"):
        grammar(forced(name), [Tool(f"f{i}", schema) for i in range(9)])
    assert sum(len(json.dumps(call.args[0])) for call in dumped.call_args_list) < 3 * MAX_CHARS
    many = {"properties": {f"p{i}": {"type": "string"} for i in range(3000)}}
    with pytest.raises(ValueError, match="too long"):
        grammar(forced(name), [Tool("f", many)])
    assert MAX_CHARS == MAX_CONSTRAINT_CHARS
