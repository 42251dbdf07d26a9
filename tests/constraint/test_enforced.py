"""Texts are what their schema allows; llguidance alone lets others pass, or begins texts that cannot end."""

import datetime
import json
import re
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from goodspeed.constraint import grammars, schemas
from goodspeed.constraint.schemas import DATE, FORMATS, enforceable
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import CLOSERS, CONSTRAINTS, END, NUM_TOKENS, decode, encode
from tests.constraint.ending import may_end
from tests.constraint.random_schemas import random_schema

MAX_TOKENS = 150


def written(constraint: Constraint, seed: int) -> str | None:
    """Returns a text of random tokens that the constraint allows; None if it has no end by then."""
    rng, matcher = np.random.default_rng(seed), grammars.compiled_matcher(constraint, CONSTRAINTS.table)
    output = list[int]()
    while len(output) < MAX_TOKENS:
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(mask, bitorder="little")[:NUM_TOKENS].astype(bool)
        assert allowed.any(), f"the text dies after {decode(output)}: {matcher.get_error()}"
        wanted = rng.standard_normal(NUM_TOKENS) + CLOSERS * min(12, max(0, len(output) - 8))
        token = int(np.where(allowed, wanted, -np.inf).argmax())
        if token == END:
            return decode(output)
        matcher.try_consume_tokens([token])
        output.append(token)
    return None


FOUND = (135, 180, 324, 396, 426, 652, 754, 1050, 1140, 1425)
"""Seeds whose texts did not satisfy their schemas when they were passed on as they are."""


@pytest.mark.parametrize("first", [0, pytest.param(60, marks=pytest.mark.thorough)])
def test_random_schemas_are_kept_or_refused(first: int) -> None:
    num_kept = 0
    for seed in (*(FOUND if not first else ()), *range(first, 60 + 10 * first)):
        schema = random_schema(seed)
        constraint = Constraint("json_schema", json.dumps(schema))
        try:
            texts = [written(constraint, each) for each in range(2)]
        except ConstraintError:
            continue
        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        for text in texts:
            if text is not None:
                assert validator.is_valid(json.loads(text)), (seed, text, constraint.source)
                num_kept += 1
    assert num_kept > 50


def allows(schema: Any, text: str) -> bool:
    return may_end(CONSTRAINTS.get(Constraint("json_schema", json.dumps(schema))), encode(text), END)


INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
CAT, DOG = (
    {"type": "object", "properties": {"kind": {"const": kind}, "n": INTEGER}, "required": ["kind"]}
    for kind in ("cat", "dog")
)
VERSIONED = {"type": "object", "required": ["v", "kind"]}
KEPT = [
    # patternProperties apply to described properties, too
    ({"properties": {"score": {}}, "patternProperties": {"^score$": INTEGER}}, ['{"score": 1}'], ['{"score": "x"}']),
    (
        {"properties": {"ab": {"minimum": 3}, "b": {}}, "patternProperties": {"^a": INTEGER}},
        ['{"ab": 3, "b": "x"}', '{"a": 1}'],
        ['{"ab": 2}', '{"ab": "x"}', '{"b": 1, "ac": "x"}'],
    ),
    (  # also of schemas that apply together
        {"allOf": [{"patternProperties": {"^a": INTEGER}}, {"additionalProperties": {"minimum": 3}}], "type": "object"},
        ['{"a": 3}', '{"b": 3}', '{"b": "x"}'],
        ['{"a": 2}', '{"a": "x"}', '{"b": 2}'],
    ),
    # also by properties of characters
    (
        {"properties": {"É": {}, "é": {}}, "patternProperties": {r"^\p{Lu}": INTEGER}, "additionalProperties": BOOLEAN},
        ['{"É": 1, "é": "x", "A": 1, "b": true}'],
        ['{"É": 1, "é": "x", "A": true}', '{"b": 1}'],
    ),
    (
        {"properties": {"É": {}}, "patternProperties": {r"^[\p{Lu}]$": {"minimum": 3}, r"^\P{L}$": BOOLEAN}},
        ['{"É": 3}', '{"E": 3}', '{"É": 3, "1": true}'],
        ['{"É": 2}', '{"E": 2}', '{"É": 3, "1": 1}'],
    ),
    # names with escapes are the same names
    (
        {"properties": {"a": INTEGER}, "additionalProperties": {"type": "string"}},
        ['{"a": 1, "b": "x"}'],
        ['{"a": 1, "\\u0061": "x"}', '{"\\u0061": "x"}'],
    ),
    ({"required": ["a"], "type": "object"}, ['{"a": 1}'], ['{"a": 1, "\\u0062": 1}', '{"\\u0061": 1}']),
    ({"patternProperties": {"^a": INTEGER}, "type": "object"}, ['{"a": 1, "b": ""}'], ['{"\\u0061": "x"}']),
    ({"type": "string"}, ['"\\u0001"'], ['"\\u0061"']),
    # oneOf whose members have nothing in common
    (
        {"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/d"}], "$defs": {"c": CAT, "d": DOG}},
        ['{"kind": "cat"}', '{"kind": "dog", "n": 1}'],
        ['{"kind": "cow"}', '{"kind": "dog", "n": "x"}', "{}"],
    ),
    ({"oneOf": [{"const": 1}, {"const": 2}, {"enum": ["1", True]}]}, ["1", "2", '"1"', "true"], ["3", "false"]),
    ({"oneOf": [{"enum": [1, 1.0, [1]]}, {"enum": [True, [True]]}, False]}, ["1", "true", "[true]"], ["2"]),
    (  # of several constants, one tells members apart
        {"oneOf": [VERSIONED | {"properties": {"v": {"const": 1}, "kind": {"const": kind}}} for kind in "abc"]},
        ['{"v": 1, "kind": "b"}'],
        ['{"v": 1, "kind": "d"}', '{"v": 1}'],
    ),
    ({"oneOf": [{"type": "integer"}, {"type": ["string", "null"]}], "minimum": 3}, ["3", "null"], ["2"]),
    (
        {"oneOf": [{"const": 1}, {"const": 2}, {"const": 3}], "anyOf": [{"minimum": 2}], "allOf": [{"maximum": 2}]},
        ["2"],
        ["1", "3"],
    ),
    # an $id of the whole is no matter
    ({"$id": "http://a/b", "$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, ["5"], ['"a"']),
    # additionalItems is no keyword of draft 2020-12
    (
        {"type": "array", "prefixItems": [INTEGER], "items": BOOLEAN, "additionalItems": False},
        ["[1, true]", "[]"],
        ["[true]", "[1, 2]"],
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [INTEGER],
            "additionalItems": BOOLEAN,
        },
        ["[1, true]"],
        ["[true]", "[1, 2]"],
    ),
    # minProperties
    ({"minProperties": 1, "type": "object", "additionalProperties": BOOLEAN}, ['{"a": true}'], ["{}"]),
    (
        {"minProperties": 2, "type": "object", "properties": {"a": BOOLEAN}, "required": ["a"]},
        ['{"a": true, "b": 1}'],
        ['{"a": true}', '{"a": true, "a": true}'],
    ),
    # numbers
    ({"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}, [str((1 << 63) - 1), "-9"], [str(1 << 63)]),
    ({"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}, ["0", "12345678901"], ["-1"]),
    ({"type": "integer", "maximum": 1e30, "minimum": 7}, ["7", "8"], ["6"]),
    ({"enum": [1 << 53, 0.1, -1e300]}, [str(1 << 53), "0.1"], [str((1 << 53) + 1)]),
    # formats
    (
        {"format": "date"},
        ['"2024-02-29"', '"2000-02-29"', '"2023-12-31"'],
        ['"2023-02-29"', '"1900-02-29"', '"0000-01-01"'],
    ),
    ({"format": "time"}, ['"23:59:59Z"', '"12:00:00.25+05:30"'], ['"12:00:60Z"', '"24:00:00Z"', '"12:00:00"']),
    ({"format": "date-time"}, ['"2024-02-29T10:00:00Z"'], ['"2023-02-29T10:00:00Z"', '"2024-02-29T10:00:60Z"']),
    ({"format": "date", "pattern": "^20"}, ['"2024-01-01"'], ['"1999-01-01"']),
    ({"type": ["string", "integer"], "format": "date"}, ['"2024-01-01"', "5"], ['"x"']),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), KEPT, ids=[json.dumps(each[0])[:60] for each in KEPT])
def test_what_a_schema_allows(schema: dict[str, Any], right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not allows(schema, text)] == []
    assert [text for text in wrong if allows(schema, text)] == []


def test_only_so_many_members_are_compared() -> None:
    members = [{"const": number} for number in range(schemas.MAX_MEMBERS + 1)]
    assert enforceable({"oneOf": members[1:]})[0] == {"anyOf": members[1:]}
    assert enforceable({"oneOf": members})[0] == {"oneOf": members}


def test_every_date_of_four_centuries_is_one() -> None:
    found = re.compile(DATE)
    day, end = datetime.date(1896, 1, 1), datetime.date(2304, 1, 1)
    dates = {(day + datetime.timedelta(each)).isoformat() for each in range((end - day).days)}
    said = {f"{y}-{m:02}-{d:02}" for y in range(1896, 2304) for m in range(14) for d in range(33)}
    assert {each for each in said if found.fullmatch(each)} == dates
    assert found.fullmatch("0004-02-29")
    assert FORMATS["date"] == f"^{DATE}$"


REFUSED = [
    (
        {"minProperties": 2, "additionalProperties": BOOLEAN},
        '"minProperties": 2 cannot be kept, since names that are not described may come twice; name all but one',
    ),
    ({"properties": {"a": {}}, "patternProperties": {"(?=a)": {}}}, "look-around"),
    *(
        (
            {"properties": {"score": {}}, "patternProperties": {pattern: {}}, "additionalProperties": False},
            f'the pattern "{pattern}" may match no name but described ones',
        )
        for pattern in ("^score$", "^(score|mark)$", r"^sc?\.ore$", "^[.*+]$")
    ),
    ({"const": (1 << 53) + 1}, "the number 9007199254740993 cannot be kept exactly"),
    ({"enum": [{"a": [12345678901234567890]}]}, "the number 12345678901234567890 cannot be kept exactly"),
    ({"type": "integer", "minimum": (1 << 53) + 1}, "cannot be kept exactly"),
    ({"type": "integer", "exclusiveMinimum": 1 << 54}, "cannot be kept for integers; write minimum"),
    ({"type": "integer", "minimum": 1e30}, "cannot be kept for integers"),
    ({"type": "string", "format": "unknown"}, "Unknown format: unknown"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, "no text satisfies it; make its recursion end"),
    ({"$ref": "https://example.com/x"}, "leads out of the schema, and nothing is fetched"),
    ({"$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n"}}}, "\"$dynamicRef\": '#n' is not followed"),
    ({"items": {"$ref": "#n"}, "$defs": {"a": {"$anchor": "n"}}}, "does not exist in the schema; write a pointer"),
    (  # its reference is to its own `$defs`
        {"$ref": "#/$defs/c", "$defs": {"c": {"$id": "c", "$defs": {"d": INTEGER}, "items": {"$ref": "#/$defs/d"}}}},
        "\"$id\": 'c' below the root cannot be kept beside references",
    ),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 'the members of "oneOf" may have values in common'),
    ({"oneOf": [{"const": 1}, {"const": 2}, {"enum": [3, 1.0]}]}, 'the members of "oneOf" may have values in common'),
    (  # any of them may be 5
        {"oneOf": [{"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in "ab"]},
        'the members of "oneOf" may have values in common',
    ),
    (
        {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}}} for kind in "ab"]},
        'the members of "oneOf" may have values in common',
    ),
    ({"type": "object", "uniqueItems": True}, 'keywords that cannot be kept: ["uniqueItems"]'),
    ({"minimum": 3, "maximum": 2, "type": "integer"}, "no text satisfies it: minimum (3) is greater than maximum (2)"),
    ({"type": "string", "pattern": "^a{9}$", "maxLength": 3}, "no text satisfies it: "),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no text satisfies it: incompatible types"),
    (
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        "no text satisfies it: required property 'a' is unsatisfiable",
    ),
    (
        {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1},
        'min/maxProperties only supported when all keys listed in "properties" are required',
    ),
    (
        {"type": "object", "patternProperties": {"^a": {}, "b$": {}}},
        "patternProperty regexes /^a/ and /b$/ are not disjoint",
    ),
    ({"type": "string", "pattern": "a^b"}, "has ^ or $ in its middle"),
]


@pytest.mark.parametrize(("schema", "why"), REFUSED, ids=[each[1][:50] for each in REFUSED])
def test_what_cannot_be_kept_is_refused_in_our_words(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ConstraintError) as error:
        CONSTRAINTS.get(Constraint("json_schema", json.dumps(schema)))
    said = str(error.value)
    assert why in said
    theirs = ("Unsatisfiable schema", "json-schema:", "coerce", "Unimplemented", "lookaround")
    assert not [words for words in theirs if words in said]
