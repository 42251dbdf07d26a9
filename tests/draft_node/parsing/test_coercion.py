"""Bare text made into JSON by declared types."""

import json
from typing import Any

import pytest

from draft_node.parsing.schemas import arguments_of, types_of
from goodspeed.constraint.references import Resolver

SCHEMA: dict[str, Any] = {
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "s": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/Place"},
        "loop": {"$ref": "#/$defs/Loop"},
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
