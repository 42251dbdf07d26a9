"""A constraint forces a row of tokens: never more than was told, and never more than each row pays for."""

import json
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from goodspeed.constraint.forcing import MAX_BYTES, of_grammar, of_pattern, of_schema
from goodspeed.constraint.grammars import to_grammar
from goodspeed.constraint.matcher import Matcher
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import CONSTRAINTS, END
from tests.constraint.ending import may_end
from tests.constraint.hostile import HOSTILE_ROWS, LONG, schemas

UNFORCED = "no_forcing"
INF = float("inf")
NAMES = [f"{each:02}" for each in range(40)]
NO_VALUES: dict[str, Any] = {name: {} for name in NAMES}
VALUE = {"const": "xy" * 450}


def far(**schema: Any) -> dict[str, Any]:
    """The schema, as what comes after a text that is free, where no trial gets."""
    return {"type": "object", "properties": {"a": {"type": "string"}, "b": schema}, "required": ["a", "b"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "7" * 4_000},
        {"enum": [LONG, "a"]},
        {"type": "array", "minItems": 100, "items": {"const": "abcdefghijklmno"}},
        {"allOf": [{"type": "array", "items": {"const": "x" * 900}}, {"minItems": 10}]},
        {"type": "string", "pattern": "^(x|xx){1000}$"},
        {"type": "string", "pattern": "^a*$", "minLength": 60_000},
        {"type": "object", "properties": {"title": {"const": LONG}}, "required": ["title"]},
        {"type": "object", "properties": {"*" * 4_000: {"const": 1}}, "minProperties": 1},
        {"const": 10**300},
        {"type": "number", "multipleOf": 1e-300},
        {"$ref": "#"},
        {"minItems": 10**400, "items": {"const": 1}},
        {"type": "object", "required": NAMES, "additionalProperties": VALUE},
        {"type": "object", "required": NAMES, "patternProperties": {"^..$": VALUE}, "additionalProperties": False},
        {"allOf": [{"required": NAMES, "properties": NO_VALUES}, {"additionalProperties": VALUE}]},
    ],
)
def test_long_runs_are_seen_wherever_they_come(schema: dict[str, Any]) -> None:
    assert of_schema(schema) > MAX_BYTES
    assert of_schema(far(**schema)) > MAX_BYTES


def test_what_says_nothing_and_what_is_a_choice_is_not_added() -> None:
    assert of_schema({"type": "string", "description": LONG, "minLength": 5_000}) < 100
    assert of_schema({"enum": [f"{each:0100}" for each in range(50)]}) < 200
    assert of_schema({"properties": NO_VALUES, "additionalProperties": False}) < 1_000
    once = {"$defs": {"d": {"const": "x" * 100}}, "prefixItems": [{"$ref": "#/$defs/d"}]}
    twice = once | {"prefixItems": [{"$ref": "#/$defs/d"}] * 2}
    assert 100 < of_schema(once) < 150 < 200 < of_schema(twice) < 250


@pytest.mark.parametrize(
    ("grammar", "num_bytes"),
    [
        ('start: "ab" | "c"', 4),  # with its quotes
        ('start: a a\na: "b"\n   | "cd"', 8),
        ("start: /[0-9]{3}x/", 3 * 11),
        ('start: TEXT "</end>"\nTEXT: /(.|\\n)*/', 8),
        ('start: TEXT "</end>"\nTEXT: /(.|\\n)*/ & ~(A /(.|\\n)*/)\nA: /(.|\\n)*/ ("ab" | /c{999}/)', 8),
        ("start: TEXT\nTEXT: /(.|\\n)*/ & ~(/(.|\\n)*/ A)", INF),
        ("start: TEXT\nTEXT: /(.|\\n)*/ & ~(A /(.|\\n)*/) A", INF),
        ('start: /(.|\\n)*/ & ~"ab"', INF),
        ('start: a+\na: "x"', 6),
        ('start: a\na: "(" a ")" | "x"', INF),
        ('start: A & "b"\nA: /a/', INF),
        ('start: "a"{99}', INF),
        ('start: "a"\n%ignore /b/', INF),
        ("start: j", 50),
    ],
)
def test_grammars_by_hand(grammar: str, num_bytes: float) -> None:
    assert of_grammar(grammar, {"j": 50}) == num_bytes


def test_patterns_by_hand() -> None:
    assert of_pattern("ab") == 2
    assert of_pattern("(é{2}){3,}") == 6 * len("(é{2}){3,}".encode())
    assert of_pattern("a{17}") == INF


def walk(compiled: Matcher, seed: int, num_tokens: int = 40) -> list[int]:
    """Returns how many tokens were forced at each place of a random text."""
    matcher, choose, found = compiled.inner, random.Random(seed), list[int]()
    for _ in range(num_tokens):
        found.append(len(matcher.compute_ff_tokens()))
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        tokens = [token for token in np.flatnonzero(bits).tolist() if token != END]
        if matcher.is_error() or not tokens or not matcher.consume_token(choose.choice(tokens)):
            break
    return found


@pytest.mark.parametrize("constraint", HOSTILE_ROWS.values(), ids=HOSTILE_ROWS)
def test_no_constraint_has_more_forced_than_is_paid_for(constraint: Constraint) -> None:
    """Each took 10 ms to a second for each row, when all that it forces was computed."""
    with suppress(ConstraintError):
        assert max(walk(CONSTRAINTS.get(constraint), 1)) <= MAX_BYTES


def test_what_is_told_is_never_too_low() -> None:
    often = {"required": NAMES[:20], "additionalProperties": {"const": "the quick brown fox jumps over the lazy dog"}}
    for seed, constraint in enumerate([*schemas(), Constraint("json_schema", json.dumps({"type": "object", **often}))]):
        told = of_schema(json.loads(constraint.source))
        assert told >= max(walk(CONSTRAINTS.get(constraint), seed)), constraint.source


def test_ordinary_constraints_still_force_what_must_follow() -> None:
    unforced = [each.source for each in schemas() if UNFORCED in to_grammar(each, {})]
    assert len([each for each in unforced if "$ref" not in each]) <= 1
    assert len(unforced) <= 6
    assert UNFORCED in to_grammar(Constraint("choice", json.dumps(["x" * (MAX_BYTES + 1)])), {})
    assert UNFORCED not in to_grammar(Constraint("choice", json.dumps(["x" * MAX_BYTES, "y"])), {})


def test_a_constraint_that_forces_nothing_is_kept_all_the_same() -> None:
    matcher = CONSTRAINTS.get(Constraint("json_schema", json.dumps({"const": LONG})))
    whole = CONSTRAINTS.table.tokenizer.tokenize_str(json.dumps(LONG))
    assert may_end(matcher, whole, END)
    assert not may_end(matcher, whole[:-1], END)
    assert matcher.forced(whole[:5]) == ()


NESTED = 600 * "[" + 600 * "]"


@pytest.mark.parametrize(
    "source",
    [
        '{"type": "number", "minimum": true}',
        f'{{"minProperties": 1{400 * "0"}}}',
        f'{{"type": "number", "minimum": -1{400 * "0"}, "maximum": 0.5}}',
        f'{{"enum": [{NESTED}], "minProperties": 1}}',
        f'{{"default": {NESTED}, "minProperties": 1}}',
        '{"$ref": 5}',
        '{"enum": 5, "properties": [], "required": {}}',
    ],
)
def test_no_number_or_depth_breaks_the_compiling(source: str) -> None:
    """Each may be served or refused, and raises nothing else."""
    with suppress(ConstraintError):
        assert CONSTRAINTS.get(Constraint("json_schema", source))
