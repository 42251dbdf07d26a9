"""What a form forces in a row: by hand, never more than was told, and never more than is paid for at each row."""

import json
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from experiments.benchmarks.grammar import HOSTILE_ROWS, schemas
from goodspeed.errors import GrammarError
from goodspeed.grammar.compiling import Grammar
from goodspeed.grammar.forced.rules import of_rules
from goodspeed.grammar.forced.runs import MAX_RUN, NOTHING, broken, fixed, one_of, optional, sequence, times
from goodspeed.grammar.forced.schemas import of_schema
from goodspeed.grammar.literals import MAX_LITERAL
from goodspeed.grammar.matcher import Matcher
from goodspeed.grammar.sources import to_grammar
from goodspeed.wire.generation import Constraint
from tests.grammar.babbler import END, GRAMMARS

UNFORCED = "no_forcing"
LONG = "abcdefghij " * 370  # 4,070 bytes


def test_runs_add_up_until_there_is_a_choice() -> None:
    abc, digit = fixed(3), broken(1)
    assert sequence((abc, abc)) == fixed(6)
    assert sequence((abc, digit, abc)) == (4, 4, 4, None, False)
    assert sequence((abc, optional(digit), abc)).longest == 6  # the digit may be what cannot be there
    assert one_of((abc, digit)).whole == 3
    assert times(abc, 4) == fixed(12)
    assert times(digit, 4).longest == 2
    assert sequence(()) == NOTHING


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        ({"const": "ab"}, 4),
        ({"enum": ["a", "bcd"]}, 5),
        ({"type": "array", "minItems": 100, "items": {"const": "ab"}}, 2 + 101 * 6),
        ({"type": "array", "minItems": 100, "items": {"enum": ["ab", "cd"]}}, 10),
        ({"anyOf": [{"const": "a" * 50}, {"type": "null"}]}, 52),
        ({"type": "string", "pattern": "^a{10}$"}, 2 + 4 * 12),
        ({"properties": {"a": {"type": "string"}, "bc": {"type": "integer"}}}, 11),
        ({"type": "number", "exclusiveMinimum": True, "minimum": 0}, 1),
        ({"type": "number", "minimum": -(10**400), "maximum": 0.5}, 402),
    ],
)
def test_runs_of_schemas_by_hand(schema: dict[str, Any], longest: int) -> None:
    assert of_schema(schema).longest == longest


def test_names_are_as_long_as_they_are_written_and_only_patterns_of_names_repeat() -> None:
    """`minProperties` has all of the schema counted together."""
    assert of_schema({"properties": {"*" * 4_000: True}, "minProperties": 1}).longest > 4_000
    assert of_schema({"patternProperties": {"^a{900}$": True}, "minProperties": 1}).longest > 4 * 900


NESTED = 600 * "[" + 600 * "]"


@pytest.mark.parametrize(
    "source",
    [
        '{"type": "number", "exclusiveMinimum": true, "minimum": 0}',
        '{"type": "number", "minimum": true}',
        '{"type": "number", "multipleOf": true}',
        f'{{"minProperties": 1{400 * "0"}}}',
        f'{{"type": "array", "minItems": 1{400 * "0"}, "items": {{"minProperties": 1}}}}',
        f'{{"type": "object", "required": ["a"], "additionalProperties": '
        f'{{"type": "string", "pattern": "a", "minLength": 1{400 * "0"}}}, "properties": {{"b": {{"$ref": "#"}}}}}}',
        f'{{"type": "number", "minimum": -1{400 * "0"}, "maximum": 0.5}}',
        f'{{"type": "number", "multipleOf": 1{400 * "0"}}}',
        f'{{"enum": [{NESTED}], "minProperties": 1}}',
        f'{{"const": {NESTED}}}',
        f'{{"default": {NESTED}, "minProperties": 1}}',
    ],
)
def test_no_number_or_depth_breaks_the_compiling(source: str) -> None:
    """Each may be served or refused, and raises nothing else."""
    with suppress(GrammarError):
        GRAMMARS.get(Constraint("json_schema", source))


@pytest.mark.parametrize(
    ("grammar", "longest"),
    [
        ('start: "ab" | "c"', 4),  # with its quotes
        ('start: a{10}\na: "b"\n   | "cd"', 44),
        ("start: /[0-9]{3}x/", 4 * 6),
        ('start: TEXT "</end>"\nTEXT: /(.|\\n)*/', 8),
        ('start: a\na: "(" a ")" | "x"', float("inf")),
        ('start: A & "b"\nA: /a/', float("inf")),
        ('start: "a"\n%ignore /b/', float("inf")),
    ],
)
def test_runs_of_rules_by_hand(grammar: str, longest: float) -> None:
    assert of_rules(grammar, {}).longest == longest


def walk(grammar: Grammar, seed: int, num_tokens: int = 40) -> list[int]:
    """Returns how many tokens were forced at each place of a random text."""
    matcher, choose, found = grammar.begin(), random.Random(seed), list[int]()
    for _ in range(num_tokens):
        found.append(len(matcher.compute_ff_tokens()))
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        tokens = [token for token in np.flatnonzero(bits).tolist() if token != END]
        if matcher.is_error() or not tokens or not matcher.consume_token(choose.choice(tokens)):
            break
    return found


@pytest.mark.parametrize("constraint", HOSTILE_ROWS.values(), ids=HOSTILE_ROWS)
def test_no_form_has_more_forced_tokens_computed_than_are_paid_for(constraint: Constraint) -> None:
    """Each took 10 ms to a second for each row, when all that it forces was computed."""
    try:
        grammar = GRAMMARS.get(constraint)
    except GrammarError:
        return
    assert max(walk(grammar, 1)) <= MAX_RUN


def test_what_is_told_is_never_too_low() -> None:
    for seed, constraint in enumerate(schemas()):
        told = of_schema(json.loads(constraint.source)).longest
        assert told >= max(walk(GRAMMARS.get(constraint), seed)), constraint.source


def test_ordinary_forms_still_force_what_must_follow() -> None:
    unforced = [each.source for each in schemas() if UNFORCED in to_grammar(each)]
    assert len(unforced) <= 5
    assert all("$ref" in each for each in unforced)
    assert UNFORCED in to_grammar(Constraint("choice", json.dumps(["x" * (MAX_RUN + 1)])))
    assert UNFORCED not in to_grammar(Constraint("choice", json.dumps(["x" * MAX_RUN, "y"])))


def test_a_form_that_forces_nothing_is_kept_all_the_same() -> None:
    matcher = Matcher(GRAMMARS.get(Constraint("json_schema", json.dumps({"const": LONG}))))
    whole = GRAMMARS.table.tokenizer.tokenize_str(json.dumps(LONG))
    assert matcher.may_end(whole)
    assert not matcher.may_end(whole[:-1])
    assert matcher.forced(whole[:5]) == ()


TOO_LONG = [
    ("json_schema", json.dumps({"const": "7" * 60_000}), "const has 60002 bytes"),
    ("json_schema", json.dumps({"items": {"enum": ["a", "é" * 3_000]}}), "a value of enum has 6002 bytes"),
    ("json_schema", json.dumps({"properties": {"n" * 5_000: {}}}), "the name of a property has 5000 bytes"),
    ("json_schema", json.dumps({"required": ["n" * 5_000]}), "the name of a property has 5000 bytes"),
    ("json_schema", json.dumps({"pattern": "(ab|c){2500}"}), "a pattern of the schema has 5000 characters in a row"),
    ("json_schema", '{"const": ' + "9" * 400 + "}", "const has more than 308 digits"),
    ("choice", json.dumps(["a", "b" * 5_000]), "a choice has 5000 bytes"),
    ("regex", "a" * 5_000, "the regular expression has 5000 characters in a row"),
    ("grammar", "start: " + json.dumps("a" * 5_000), "a text of the grammar has 5002 bytes"),
    ("grammar", "start: /a{5000}/", "a pattern of the grammar has 5000 characters in a row"),
]


@pytest.mark.parametrize(("kind", "source", "what"), TOO_LONG)
def test_literals_are_bounded_before_anything_is_compiled(
    kind: Any, source: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodspeed.grammar.compiling.LLMatcher", None)
    with pytest.raises(GrammarError, match=r"shorten it|smaller number") as error:
        GRAMMARS.get(Constraint(kind, source))
    assert str(error.value).startswith(what)
    assert str(MAX_LITERAL) in str(error.value) or "308" in what
