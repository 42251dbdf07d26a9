"""What is said of mistakes: what is wrong in the user's own words, and what to do; no word of the library's."""

import json

import pytest

from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.wording import MAX_CHARS, own_words, without_place
from goodspeed.wire.fields import ConstraintKind
from goodspeed.wire.generation import Constraint
from tests.grammar.babbler import VOCABULARY

GRAMMARS = Grammars(VOCABULARY)

SAID: list[tuple[ConstraintKind, str, str]] = [
    (
        "regex",
        "ab(c",
        'the pattern "ab(c" is wrong at "(" (character 3): unclosed group; '
        "close it with ), or write \\( for the character",
    ),
    (
        "regex",
        "a/b{3,2}",
        'the pattern "a/b{3,2}" is wrong at "{3,2}": the lower count is above the upper; swap them',
    ),
    ("regex", "a\\bz", 'the pattern "a\\bz" has \\b or \\B, which are not taken; leave them out'),
    ("regex", "a\\\\\\", "the regular expression ends in a backslash; write two for the character, or leave it out"),
    (
        "grammar",
        "start: number",
        'line 1, column 8: "number" is not defined; write a rule for it, or put a text in quotes',
    ),
    ("grammar", 'root: "a"', "no rule is called start; call the first one so"),
    ("grammar", 'start: x\nx "a"', "line 2, column 3: ':' is expected where \"a\" is; write it there"),
    ("grammar", 'start ::= "a"', "line 1, column 8: a rule is written as name: and what it is; write no ::="),
    (
        "grammar",
        'start: x\nx: %json {"type": "text"}',
        'line 2, column 4: %json: the type "text" is not known; '
        "write string, number, integer, boolean, object, array or null",
    ),
    ("json_schema", '{"uniqueItems": true}', '"uniqueItems": not taken in a schema; leave it out'),
    ("json_schema", '{"minLength": "a"}', 'minLength is "a"; write a JSON positive integer'),
    (
        "json_schema",
        '{"oneOf": [{"type": "string"}, {"type": "string"}]}',
        "oneOf is taken where its choices cannot overlap; write anyOf instead",
    ),
    (
        "json_schema",
        '{"type": "string", "pattern": "[a-"}',
        'the pattern "[a-" is wrong at "[" (character 1): unclosed character class; '
        "close it with ], or write \\[ for the character",
    ),
    ("json_schema", '{"pattern": "^a", "format": "date", "type": "string"}', "no text keeps all patterns, formats and"),
    ("json_schema", '{"$ref": "#/$defs/x"}', '$ref "#/$defs/x" does not exist in the schema; correct it, or define it'),
]

MISTAKES: dict[ConstraintKind, list[str]] = {
    "regex": [
        *(
            "a)",
            "[z-a]",
            "*a",
            "a{2",
            "a{,3}",
            "(?=a)b",
            "(?<!a)b",
            "(a)\\1",
            "\\p{Foo}",
            "(?>a)",
            "\\Z",
            "\\Ba",
            "a^b",
        ),
        "(?i",
        "x" * 900 + "(?=a)" + "y" * 900,
    ],
    "grammar": [
        *('start: "a', "start: 'a'", "start: ((x", "start: A\nA: A", "start: @x", "start: <x>", "start: /a(/"),
        *('start: "a"\nstart: "b"', 'start: "a"{3', "start: X\n%import common.X", 'start: "a".."bc"'),
        'start: "a" b\nb: c\nc: b "c"',
    ],
    "json_schema": [
        *map(
            json.dumps,
            (
                {"type": "text"},
                {"format": "smell"},
                {"not": {}},
                {"if": {}, "then": {}},
                {"required": "a"},
                {"minimum": "3"},
                {"items": 5},
                {"multipleOf": 0},
                {"enum": []},
                {"type": "string", "enum": [1]},
                {"$schema": "http://x"},
                {"minItems": 3, "maxItems": 1, "type": "array"},
                {"patternProperties": {"a(": {}}},
                {"pattern": "(?=a)"},
                {"pattern": "a\\bz"},
                {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
                {"$ref": 5},
                {"$ref": "#", "type": "string"},
                {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
                {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}},
                {
                    "$ref": "#/$defs/a",
                    "type": "string",
                    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}},
                },
            ),
        )
    ],
}
INNER = (
    "regex parse",
    "in regex",
    "lookaround",
    "coerce_one_of",
    "x-guidance",
    "f64",
    "verbose",
    " | start",
    "parser error",
    "json-schema://",
    "sibling",
    "stack level",
    "Current row",
)


@pytest.mark.parametrize(("kind", "source", "said"), SAID)
def test_what_is_said_of_a_mistake(kind: ConstraintKind, source: str, said: str) -> None:
    assert str(GRAMMARS.problem(b"1", Constraint(kind, source))).startswith(said)


@pytest.mark.parametrize(("kind", "source"), [(kind, each) for kind, sources in MISTAKES.items() for each in sources])
def test_no_reason_has_the_librarys_own_words_in_it(kind: ConstraintKind, source: str) -> None:
    said = str(GRAMMARS.problem(b"1", Constraint(kind, source)))
    assert not [inner for inner in INNER if inner in said], said
    assert said.startswith("line ") is (kind == "grammar" and "start" in source and "line " in said)
    assert len(said) <= MAX_CHARS
    if source not in ('start: "a".."bc"', '{"items": 5}'):
        assert ";" in said, said  # what to do


def test_a_long_pattern_is_quoted_around_what_is_wrong() -> None:
    said = str(GRAMMARS.problem(b"1", Constraint("regex", "x" * 900 + "(?=a)" + "y" * 900)))
    assert '"...' + "x" * 24 + "(?=a)" + "y" * 19 + '..." is wrong at "(?=" (character 901)' in said


def test_what_is_not_known_is_passed_on_without_the_grammar() -> None:
    said = 'at 3(7): something new\n   2 | a: "b"\n   3 | c: "d"\n            ^\n'
    assert own_words(said, has_lines=True) == "line 3, column 7: something new"
    assert own_words(said, has_lines=False) == "something new"
    assert own_words("<non-verbose/>", has_lines=False) == ""
    assert len(own_words("a" * 5000, has_lines=False)) == MAX_CHARS


def test_lines_of_a_grammar_that_was_made_of_something_else_are_left_out() -> None:
    assert without_place("line 3, column 7: %json: the type") == "the type"
    assert without_place("the type of line 3, column 7: x") == "the type of line 3, column 7: x"
