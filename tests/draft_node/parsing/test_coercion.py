"""Bare text made into JSON by declared types."""

import json
from typing import Any

import pytest

from draft_node.parsing.tool_schemas import arguments_of, types_of
from goodspeed.constraint import references
from goodspeed.constraint.references import Resolver

TYPES = {"n": "integer", "x": ["number", "null"], "s": "string", "l": "array", "o": ["object", "null"]}
SCHEMA: dict[str, Any] = {
    "properties": {
        **{name: {"type": types} for name, types in TYPES.items()},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/Place"},
        "loop": {"$ref": "#/$defs/Loop"},
        "i": {"enum": [5, 6], "type": "integer"},
        "maybe": {"type": "integer", "nullable": True},
        "name": {"type": "string", "nullable": True},
        "self": {"$ref": "#/properties/n"},
        "odd": {"type": 5, "anyOf": "no", "$ref": "elsewhere"},
    },
    "$defs": {"Place": {"type": "object"}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "array"}]}},
}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n", "7", 7),
        ("n", " 7\n", 7),
        ("n", "7.5", "7.5"),
        ("n", "7.0", 7),
        ("n", "-1e2", -100),
        ("n", "1e300", "1e300"),
        ("x", "7.0", 7.0),
        ("i", "5.0", 5),
        ("i", "5", 5),
        ("self", "7.0", 7),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "3", 3),
        ("name", "null", None),
        ("name", "nil", "nil"),
        ("l", "['a', \"it's\", 'say \"hi\"', 'it\\'s', True, None]", ["a", "it's", 'say "hi"', "it's", True, None]),
        ("l", '["True", "None \\\\", 1]', ["True", "None \\", 1]),
        ("l", "['a", "['a"),
        ("l", "['a\\']", "['a\\']"),
        ("l", "(1, 2)", "(1, 2)"),
        ("l", "['a'.b]", "['a'.b]"),
        ("l", "'" * 50_001, "'" * 50_001),
        ("o", "{'a': {'b': False}}", {"a": {"b": False}}),
        ("o", "None", None),
        ("o", "__import__('os')", "__import__('os')"),
        ("n", "true", "true"),
        ("n", "9" * 5000, "9" * 5000),
        ("x", "7", 7),
        ("x", "1e3", 1000.0),
        ("x", "None", None),
        ("x", "NaN", "NaN"),
        ("s", "7", "7"),
        ("s", '"7"', '"7"'),
        ("either", "null", None),
        ("either", "5", "5"),
        ("place", '{"a": [1]}', {"a": [1]}),
        ("place", "[" * 100_000, "[" * 100_000),
        ("loop", "[1]", [1]),
        ("odd", "1", "1"),
        ("unknown", "1", "1"),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert json.loads(arguments_of({name: text}, SCHEMA) or "") == {name: value}


def test_what_no_json_stands_for() -> None:
    assert arguments_of({"s": "\ud800"}, SCHEMA) is None
    assert arguments_of({"x": "1e999"}, SCHEMA) is None
    assert arguments_of({"a": "é"}, {"properties": []}) == '{"a": "é"}'


def test_types() -> None:
    assert types_of(SCHEMA["properties"]["loop"], Resolver(SCHEMA)) == {"array"}
    assert types_of({"oneOf": [{"type": "string"}, {"allOf": [{"type": "null"}]}]}, Resolver({})) == {"string", "null"}
    assert types_of(None, Resolver({})) == types_of(True, Resolver({})) == frozenset()


@pytest.mark.parametrize("inner", [{"$id": "b"}, {"anyOf": [{}] * references.MAX_PARTS}], ids=["inner", "parts"])
def test_references_that_cannot_be_followed_leave_the_other_parameters_their_types(inner: dict[str, Any]) -> None:
    number = {"type": "integer"}
    schema = {"properties": {"n": number, "r": {"$ref": "#/$defs/n"}, "i": inner}, "$defs": {"n": number}}
    assert json.loads(arguments_of({"n": "1", "r": "1", "i": "1"}, schema) or "") == {"n": 1, "r": "1", "i": "1"}
