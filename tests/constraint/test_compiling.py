"""Constraints of every kind are compiled and kept; wrong ones are refused by name, costly ones within bounds."""

import gc
import json
import threading
import time
import weakref
from typing import Any

import pytest

from goodspeed.constraint import grammars
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.grammars import to_grammar
from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.tokens import TokenTable
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import END, VOCABULARY, Babbler, decode, encode

TABLE = TokenTable.of(VOCABULARY)

HANGS_S = 5.0
"""Longest time of one compilation: it guards against work that llguidance does not count, and measures nothing."""


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [
        (Constraint("json_object"), lambda text: isinstance(json.loads(text), dict)),
        (Constraint("regex", "[ab]{2,4}"), lambda text: set(text) <= {"a", "b"} and 2 <= len(text) <= 4),
        (Constraint("choice", '["yes", "no", "ja\\n\\"x\\""]'), lambda text: text in ("yes", "no", 'ja\n"x"')),
        (
            Constraint("grammar", 'start: "(" start ")" | NUMBER\nNUMBER: /[0-9]{1,3}/'),
            lambda text: text.strip("()").isdigit(),
        ),
        (
            Constraint("grammar", 'start: "<" value ">"\r\nvalue : %json {"enum": [1]} \r\n'),
            lambda text: text == "<1>",
        ),
        (
            Constraint("json_schema", '{"enum": [[1]], "uniqueItems": false, "dependentRequired": {}}'),
            lambda text: text == "[1]",
        ),
    ],
)
def test_each_kind_is_kept(constraint, fits):
    for seed in range(4):
        text = decode(Babbler(seed, constraint).write())
        assert fits(text), text


INTEGER = json.dumps({"type": "integer"})
REFUSED = [
    ("json_object", "{}", "takes no schema"),
    ("json_schema", "{", "cannot be read as JSON"),
    ("json_schema", "[1]", "send a JSON object"),
    ("json_schema", "false", "send a JSON object"),
    ("json_schema", '{"type": "strin"}', "strin"),
    ("json_schema", '{"not": {"type": "string"}}', '"not"'),
    ("json_schema", '{"type": "array", "uniqueItems": true}', '"uniqueItems"'),
    ("json_schema", '{"$ref": "#/$defs/a", "allOf": null, "$defs": {"a": true}}', "allOf must be an array"),
    ("json_schema", '{"if": {}, "then": {}}', '"if"'),
    ("json_schema", '{"type": "object", "dependentRequired": {"a": ["b"]}}', '"dependentRequired"'),
    ("json_schema", '{"type": "object", "propertyNames": {"maxLength": 3}}', '"propertyNames"'),
    ("json_schema", '{"contains": {"type": "integer"}}', '"contains"'),
    ("json_schema", '{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "oneOf"),
    ("json_schema", '{"type": "string", "format": "smell"}', "smell"),
    ("json_schema", '{"type": "string", "pattern": "("}', "unclosed group"),
    ("json_schema", '{"$ref": "#/$defs/none"}', "does not exist"),
    ("json_schema", '{"$ref": "https://example.com/schema"}', "example.com"),
    ("json_schema", '{"$ref": "#"}', "no text satisfies it"),
    ("json_schema", '{"enum": []}', "empty"),
    ("json_schema", '{"type": "integer", "minimum": 3, "maximum": 2}', "minimum"),
    ("json_schema", '{"type": "string", "x-guidance": {"lenient": true}}', "x-guidance"),
    ("json_schema", '{"const": "\\ud800"}', "cannot be read"),
    ("regex", "", "is empty"),
    ("regex", "a(", "unclosed group"),
    ("regex", "(?=a)b", "look-around"),
    ("regex", "a\\", "ends in a backslash"),
    ("choice", "[]", "must be a list of"),
    ("choice", '["a", 1]', "must be a list of"),
    ("choice", '["a", ""]', "must be a list of"),
    ("choice", '"a"', "must be a list of"),
    ("grammar", "start: thing", 'line 1, column 8: unknown name: "thing"'),
    ("grammar", "", "no start rule"),
    ("grammar", 'start: x\nx "a"', "line 2, column 3"),
    ("grammar", "start: %json {", "%json is not supported"),
    ("grammar", "start: %json {nothing}", "cannot be read as JSON"),
    ("grammar", f"start: %json {INTEGER} | %json {INTEGER}", "cannot be read as JSON"),
    ("grammar", f'start: "a" %json {INTEGER}', "%json is not supported"),
    ("grammar", "start: %lark {}", "%lark is not supported"),
    ("grammar", '%llguidance {"no_forcing": false}\nstart: "a"', "%llguidance is not supported"),
    ("grammar", 'start: %json {"x-guidance": {"whitespace_flexible": true}}', "x-guidance"),
    ("grammar", 'start: %json {"x-guidance": {"lenient": 1}}', "x-guidance"),
    ("grammar", f"start: a\na: %json {INTEGER}\na: %json {INTEGER}", "defined twice"),
    ("grammar", "start: A\nA: /" + "x" * 900 + "(?=a)" + "y" * 900 + "/", "look-around"),
]


@pytest.mark.parametrize(("kind", "source", "why"), REFUSED)
def test_what_is_wrong_is_refused_with_the_reason(kind, source, why):
    """The library's own, on one line and not too long, without the grammar that was made of what was sent."""
    with pytest.raises(ConstraintError) as error:
        grammars.compiled_matcher(Constraint(kind, source), TABLE)
    said = str(error.value)
    assert why in said
    assert said.isprintable()
    assert len(said) <= 300
    assert "verbose" not in said
    assert "%json {" not in said
    assert kind == "grammar" or not said.startswith(("line", "at "))


def test_lines_of_a_grammar_that_was_made_of_something_else_are_left_out():
    assert grammars.without_place("line 3, column 7: failed to compile JSON schema: the type") == "the type"
    assert grammars.without_place("the type of line 3, column 7: x") == "the type of line 3, column 7: x"


def test_options_are_put_into_each_schema_of_a_grammar() -> None:
    assert '"whitespace_flexible": false' in to_grammar(
        Constraint("grammar", f'start: "a" one\none: %json {INTEGER}'), {}
    )
    lenient = json.dumps({"x-guidance": {"lenient": True}, "type": "integer"})
    assert '"lenient": true' in to_grammar(Constraint("grammar", f"one: %json {lenient}"), {})


def patterns(num: int) -> list[dict[str, str]]:
    return [{"type": "string", "pattern": f".*a.{{{each}}}"} for each in range(1, num + 1)]


PRIMES = (997, 991, 983, 977, 971, 967)
CHAIN = {f"d{each}": one | {"$ref": f"#/$defs/d{each + 1}"} for each, one in enumerate(patterns(12))} | {"d12": {}}
DOUBLED = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)} | {"a20": {}}
HOSTILE: dict[str, Any] = {
    "nested": '{"type": "array", "items": ' * 3000 + "{}" + "}" * 3000,  # deeper than json writes
    "many patterns at once": {"allOf": patterns(30)},
    "patterns through references": {"$defs": CHAIN, "$ref": "#/$defs/d0"},
    "many properties": {"properties": {f"p{each}": {} for each in range(2500)}},
    "many pattern properties": {"patternProperties": {f"^a.{{{each}}}b": {} for each in range(30)}},
    "a product": {
        "allOf": [{"anyOf": [{"properties": {f"x{i}_{j}": {"const": j}}} for j in range(4)]} for i in range(12)]
    },
    "a large multiple": {"type": "integer", "multipleOf": 987_654_321},
    "a multiple": {"type": "integer", "multipleOf": 999_999},
    "one of three multiples": {"anyOf": [{"type": "integer", "multipleOf": n} for n in PRIMES[:3]]},
    "repetitions": {"type": "string", "pattern": "^(ab{100}){1000}$"},
    "endless references": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "an endless object": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "enum": {"enum": [f"v{each:05}" for each in range(6000)]},
    "long text": {"type": "string", "minLength": 60000, "maxLength": 65000},
    "doubled": {"$defs": DOUBLED, "$ref": "#/$defs/a0"},
}
HOSTILE_OTHERS = {
    "repetitions": Constraint("regex", "a{99999}{9999}"),
    "repetitions of a terminal": Constraint("grammar", 'start: A\nA: B{1000}\nB: "a"{300}'),
    "parentheses": Constraint("regex", "(" * 8000 + "a" + ")" * 8000),
    "long": Constraint("regex", "a|" * 30_000),
    "intersections": Constraint("grammar", "start: A\nA: " + " & ".join(f"/.*a.{{{each}}}b.*/" for each in range(30))),
    "brackets": Constraint("grammar", "start: " + "(" * 8000 + '"a"' + ")" * 8000),
    "long grammar": Constraint("grammar", "start: " + " | ".join(f'"k{each}"' for each in range(8000))),
    "many choices": Constraint("choice", json.dumps([f"c{each}" for each in range(5000)])),
    "catastrophic": Constraint("regex", "(a*)*(a|aa)+(a*)*b{1,999}(.*a.{40}.*){20}"),
    "rules": Constraint(
        "grammar", "start: r0\n" + "\n".join(f"r{n}: r{n + 1} r{n + 1}" for n in range(700)) + '\nr700: "a"'
    ),
    "ambiguous": Constraint("grammar", 'start: x x x x x x\nx: x x | "a" | ""'),
}

ALL_HOSTILE = {
    name: Constraint("json_schema", schema if isinstance(schema, str) else json.dumps(schema))
    for name, schema in HOSTILE.items()
}
ALL_HOSTILE |= {f"{name} (another kind)": each for name, each in HOSTILE_OTHERS.items()}


@pytest.fixture(scope="module")
def trial():
    return Trial(VOCABULARY)


@pytest.mark.parametrize("constraint", ALL_HOSTILE.values(), ids=ALL_HOSTILE)
def test_hostile_ones_are_refused_or_cost_little(trial, constraint):
    """Those that pass the trial are written; a constraint of the next session passes in any case."""
    started = time.monotonic()
    if trial.problem(constraint) is None:
        write(constraint)
        assert time.monotonic() - started < HANGS_S
    assert trial.problem(Constraint("regex", "[ab]{3}")) is None


def write(constraint):
    babbler, output = Babbler(1, constraint), list[int]()
    for _ in range(20):
        outcome = babbler.round(output)
        output += outcome.tokens
        if outcome.failed or outcome.tokens[-1] == 0:
            break


@pytest.mark.parametrize(
    "name", ["many patterns at once", "many properties", "a large multiple", "a multiple", "one of three multiples"]
)
def test_what_no_limit_of_the_library_counts_is_refused(trial, name):
    said = str(trial.problem(ALL_HOSTILE[name]))
    assert "fewer or simpler" in said or "fuel" in said


TAKEN = {
    "multiples": {"properties": {f"p{n}": {"type": "integer", "multipleOf": n} for n in PRIMES[:4]}},
    "a limited multiple": {"type": "integer", "multipleOf": 997, "minimum": 123_456, "maximum": 987_654},
    "powers of ten": {"prefixItems": [{"type": "number", "multipleOf": n} for n in (0.01, 1e5, 100, 1e-7, 10_000)]},
    "money or a dozen": {"anyOf": [{"type": "number", "multipleOf": 0.25}, {"type": "number", "multipleOf": 12}]},
    "properties named so": {"properties": {"$id": {}, "$anchor": {}, "id": {"const": "x"}}, "default": {"id": "y"}},
    "a tree": {
        "$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}, "n": {"multipleOf": 7}}}},
        "$ref": "#/$defs/t",
    },
}


@pytest.mark.parametrize("schema", TAKEN.values(), ids=TAKEN)
def test_what_costs_little_is_taken(schema):
    assert not grammars.compiled_matcher(Constraint("json_schema", json.dumps(schema)), TABLE).is_error()


@pytest.fixture
def compiled(monkeypatch) -> list[Constraint]:
    """All that was compiled."""
    found, real = list[Constraint](), grammars.compiled_matcher

    def noting(one, table):
        found.append(one)
        return real(one, table)

    monkeypatch.setattr(grammars, "compiled_matcher", noting)
    return found


def test_what_was_compiled_beforehand_is_not_compiled_again_also_with_other_stop_ids(compiled):
    """The end is allowed where the grammar may end, by the newest stop ids, and the text is not read again."""
    constraints, one = Constraints(VOCABULARY), Constraint("regex", "a*")
    constraints.hold(b"1", constraints.get(one))
    matcher, text = constraints.of(b"1", one), encode("a")
    may_end = []
    for stop_ids in ((END,), (END, text[0]), (text[0],), (END,)):
        matcher.stop_at(stop_ids)
        row = matcher.allowed(text)[0]
        may_end.append(bool(row[END // 32] >> END % 32 & 1))
    assert may_end == [True, True, False, True]
    assert compiled == [one]


def test_of_a_wrong_one_only_the_reason_is_kept(monkeypatch):
    """An exception that was raised has the frames that it went through, with everything that was parsed in them."""

    class Parsed:
        pass

    parsed = list[weakref.ref[Parsed]]()

    def refuse(one, table):
        local = Parsed()
        parsed.append(weakref.ref(local))
        raise ConstraintError("wrong")

    monkeypatch.setattr(grammars, "compiled_matcher", refuse)
    compiled = Constraints(VOCABULARY).compiled(Constraint("regex", "a"))
    gc.collect()
    assert str(compiled) == "wrong"
    assert [one() for one in parsed] == [None]


def test_what_one_session_holds_no_other_has(compiled):
    """Else the time would tell it what others have sent, and one text's cost would end another."""
    constraints, one = Constraints(VOCABULARY), Constraint("regex", "a")
    for session_id in (b"1", b"2"):
        constraints.hold(session_id, constraints.get(one))
    assert compiled == [one] * 2
    assert constraints.of(b"1", one) is constraints.of(b"1", one)
    assert constraints.of(b"1", one) is not constraints.of(b"2", one)
    constraints.release(b"1")
    assert constraints.holders == [b"2"]
    assert not constraints.holds(b"1", one)


def test_a_session_holds_two_at_most_the_first_and_the_newest():
    constraints = Constraints(VOCABULARY)
    several = [Constraint("regex", source) for source in "abcd"]
    for each in several:
        constraints.hold(b"1", constraints.get(each))
    assert [constraints.holds(b"1", each) for each in several] == [True, False, False, True]
    constraints.release(b"1", but=several[3])
    assert [constraints.holds(b"1", each) for each in several] == [False, False, False, True]


def test_several_threads_may_ask():
    constraints, found = Constraints(VOCABULARY), list[object]()
    sources = [f"[ab]{{1,{each}}}" for each in range(1, 9)]

    def ask() -> None:
        found.extend(type(constraints.compiled(Constraint("regex", source))) for source in sources)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Matcher] * 32


def test_a_vocabulary_that_cannot_be_read_is_named():
    no_end = Vocabulary(name="x", tokenizer=VOCABULARY.tokenizer, tokenizer_fingerprint="", eos_ids=(), num_tokens=4096)
    no_bytes = Vocabulary(name="x", tokenizer=object(), tokenizer_fingerprint="", eos_ids=(0,), num_tokens=4096)
    assert "ends a text" in str(Constraints(no_end).compiled(Constraint("regex", "a")))
    assert "fast tokenizer" in str(Constraints(no_bytes).compiled(Constraint("regex", "a")))
