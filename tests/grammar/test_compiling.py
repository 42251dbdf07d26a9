"""Constraints of every kind, wrong ones by name, costly ones within bounds, and what is kept."""

import gc
import json
import threading
import time
import weakref

import pytest

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import GrammarError
from goodspeed.grammar import bounds, compiling
from goodspeed.grammar.bounds import check_schema
from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.matchers import Matchers
from goodspeed.grammar.tokens import TokenTable
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint
from tests.grammar.babbler import VOCABULARY, Babbler, decode

TABLE = TokenTable.of(VOCABULARY)

HANGS_S = 5.0
"""No figure: a guard against work that llguidance does not count. What compiling takes is measured by
`experiments/benchmarks/grammar.py`."""


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
    ],
)
def test_each_kind_is_kept(constraint, fits):
    for seed in range(4):
        text = decode(Babbler(seed, constraint).write())
        assert fits(text), text


REFUSED = [
    ("json_object", "{}", "has no source"),
    ("json_schema", "{", "cannot be read as JSON"),
    ("json_schema", "[1]", "send a JSON object"),
    ("json_schema", "false", "send a JSON object"),
    ("json_schema", '{"type": "strin"}', 'the type "strin" is not known'),
    ("json_schema", '{"not": {"type": "string"}}', '"not"'),
    ("json_schema", '{"type": "array", "uniqueItems": true}', '"uniqueItems"'),
    ("json_schema", '{"if": {}, "then": {}}', '"if"'),
    ("json_schema", '{"type": "object", "dependentRequired": {"a": ["b"]}}', '"dependentRequired"'),
    ("json_schema", '{"type": "object", "propertyNames": {"maxLength": 3}}', '"propertyNames"'),
    ("json_schema", '{"contains": {"type": "integer"}}', '"contains"'),
    ("json_schema", '{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "oneOf"),
    ("json_schema", '{"type": "string", "format": "smell"}', 'the format "smell" is not known'),
    ("json_schema", '{"type": "string", "pattern": "("}', "unclosed group"),
    ("json_schema", '{"$ref": "#/$defs/none"}', "does not exist"),
    ("json_schema", '{"$ref": "https://example.com/schema"}', "example.com"),
    ("json_schema", '{"$ref": "#/%24defs/a", "$defs": {"a": {}}}', "'#/%24defs/a' is not taken"),
    ("json_schema", '{"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}', "is not taken"),
    ("json_schema", '{"$ref": "json-schema:///#/$defs/a", "$defs": {"a": {}}}', "is not taken"),
    ("json_schema", '{"$id": "http://x/y", "type": "integer"}', "$id is not taken"),
    ("json_schema", '{"items": {"$anchor": "a"}}', "$anchor is not taken"),
    ("json_schema", '{"items": {"$dynamicAnchor": "a"}}', "$dynamicAnchor is not taken"),
    ("json_schema", '{"items": {"$dynamicRef": "#a"}}', "$dynamicRef is not taken"),
    ("json_schema", '{"$schema": "http://json-schema.org/draft-04/schema#", "id": "x"}', "id is not taken"),
    ("json_schema", '{"type": "integer", "multipleOf": 1001}', "multipleOf leads to 1001 remainders"),
    ("json_schema", '{"type": "number", "multipleOf": 1.001}', "multipleOf leads to 1001 remainders"),
    ("grammar", 'start: a\na: %json {"items": {"$id": "x"}}', "$id is not taken"),
    ("json_schema", '{"$ref": "#"}', "no text satisfies it"),
    ("json_schema", '{"enum": []}', "no choices"),
    ("json_schema", '{"type": "integer", "minimum": 3, "maximum": 2}', "nothing satisfies"),
    ("json_schema", '{"type": "string", "x-guidance": {"lenient": true}}', "x-guidance"),
    ("json_schema", '{"const": "\\ud800"}', "cannot be read"),
    ("regex", "", "is empty"),
    ("regex", "a(", "unclosed group"),
    ("regex", "(?=a)b", "(?=, (?!"),
    ("choice", "[]", "no list of texts"),
    ("choice", '["a", 1]', "no list of texts"),
    ("choice", '["a", ""]', "no list of texts"),
    ("choice", '"a"', "no list of texts"),
    ("grammar", "start: thing", "is not defined"),
    ("grammar", "", "Empty grammar"),
    ("grammar", 'start: "a" %json {"type": "string"}', "%json is not taken"),
]


@pytest.mark.parametrize(("kind", "source", "why"), REFUSED)
def test_what_is_wrong_is_refused_with_the_reason(kind, source, why):
    with pytest.raises(GrammarError) as error:
        compiling.compile_constraint(Constraint(kind, source), TABLE)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def nested(num: int, word: str = "items") -> str:
    return f'{{"type": "array", "{word}": ' * num + "{}" + "}" * num


def patterns(num: int) -> list[dict[str, str]]:
    return [{"type": "string", "pattern": f".*a.{{{each}}}"} for each in range(1, num + 1)]


def circle() -> str:
    """Each of `a` and `b` leads to the other; `b`, met inside of `a` first, has its patterns and those of `a`."""
    a = {"allOf": patterns(2), "properties": {"x": {"$ref": "#/$defs/b"}}}
    b = {"allOf": patterns(1), "properties": {"x": {"$ref": "#/$defs/a"}}}
    both = {"$ref": "#/$defs/b", "allOf": patterns(2)}
    return json.dumps({"$defs": {"a": a, "b": b}, "prefixItems": [{"$ref": "#/$defs/a"}, both]})


PRIMES = (997, 991, 983, 977, 971, 967)
HOSTILE = {
    "nested": nested(3000),
    "nested less": nested(90),
    "many patterns at once": json.dumps({"allOf": patterns(30)}),
    "patterns through references": json.dumps(
        {
            "$defs": {f"d{each}": one | {"$ref": f"#/$defs/d{each + 1}"} for each, one in enumerate(patterns(12))}
            | {"d12": {}},
            "$ref": "#/$defs/d0",
        }
    ),
    "patterns of one property": json.dumps({"allOf": [{"properties": {"x": each}} for each in patterns(20)]}),
    "many properties": json.dumps({"properties": {f"p{each}": {} for each in range(2500)}}),
    "many objects": json.dumps({"prefixItems": [{"properties": {f"p{n}": {} for n in range(200)}}] * 20}),
    "many pattern properties": json.dumps({"patternProperties": {f"^a.{{{each}}}b": {} for each in range(30)}}),
    "a product": json.dumps(
        {"allOf": [{"anyOf": [{"properties": {f"x{i}_{j}": {"const": j}}} for j in range(4)]} for i in range(12)]}
    ),
    "a large multiple": json.dumps({"type": "integer", "multipleOf": 987_654_321}),
    "a multiple": json.dumps({"type": "integer", "multipleOf": 999_999}),
    "a negative multiple": json.dumps({"type": "number", "multipleOf": -99_999.9}),
    "many multiples": json.dumps({"properties": {f"p{n}": {"type": "integer", "multipleOf": n} for n in PRIMES}}),
    "multiples of multiples": json.dumps({"allOf": [{"type": "integer", "multipleOf": n} for n in PRIMES[:3]]}),
    "one of three multiples": json.dumps({"anyOf": [{"type": "integer", "multipleOf": n} for n in PRIMES[:3]]}),
    "multiples of what is referred to": json.dumps(
        {
            "$defs": {"a": {"type": "integer", "multipleOf": 997}, "b": {"$ref": "#/$defs/a"}},
            "items": {"$ref": "#/$defs/b", "multipleOf": 991},
        }
    ),
    "patterns through a circle": circle(),
    "repetitions": json.dumps({"type": "string", "pattern": "^(ab{100}){1000}$"}),
    "repetitions of a name": json.dumps({"patternProperties": {"a{200}{200}": {}}}),
    "endless references": json.dumps(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    ),
}
HOSTILE_OTHERS = {
    "repetitions": Constraint("regex", "a{99999}{9999}"),
    "repetitions in classes and groups": Constraint("regex", "(x(?:[]a]{10}\\){9}){10,}){199}"),
    "repetitions with blanks": Constraint("regex", "(?ix:(a{100}) {1 000 0})"),
    "repetitions with blanks in a grammar": Constraint("grammar", "start: /a{9 99999}/x"),
    "repetitions beside classes": Constraint("regex", "(a{1000}[[b])]){1000}"),
    "repetitions of a terminal": Constraint("grammar", 'start: A\nA: B{1000}\nB: "a"{300}'),
    "repetitions in a grammar": Constraint("grammar", "start: /a{300}{300}/"),
    "parentheses": Constraint("regex", "(" * 8000 + "a" + ")" * 8000),
    "long": Constraint("regex", "a|" * 30_000),
    "intersections": Constraint("grammar", "start: A\nA: " + " & ".join(f"/.*a.{{{each}}}b.*/" for each in range(30))),
    "hidden intersections": Constraint(
        "grammar", "start: A0\n" + "\n".join(f'A{n}: A{n + 1} & /.*"&.{{{n}}}b.*/' for n in range(12)) + "\nA12: /.*/"
    ),
    "brackets": Constraint("grammar", "start: " + "(" * 8000 + '"a"' + ")" * 8000),
    "long grammar": Constraint("grammar", "start: " + " | ".join(f'"k{each}"' for each in range(8000))),
    "multiples of several schemas": Constraint(
        "grammar",
        "start: a | b\n" + "\n".join(f'{r}: %json {{"multipleOf": {n}}}' for r, n in (("a", 997), ("b", 991))),
    ),
    "many choices": Constraint("choice", json.dumps([f"c{each}" for each in range(5000)])),
}
COSTLY = {
    "enum": Constraint("json_schema", json.dumps({"enum": [f"v{each:05}" for each in range(6000)]})),
    "counted": Constraint("json_schema", '{"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"}'),
    "long text": Constraint("json_schema", '{"type": "string", "minLength": 60000, "maxLength": 65000}'),
    "long array": Constraint("json_schema", '{"type": "array", "minItems": 100000, "items": {"type": "integer"}}'),
    "catastrophic": Constraint("regex", "(a*)*(a|aa)+(a*)*b{1,999}(.*a.{40}.*){20}"),
    "doubled": Constraint(
        "json_schema",
        json.dumps(
            {
                "$defs": {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)} | {"a20": {}},
                "$ref": "#/$defs/a0",
            }
        ),
    ),
    "endless": Constraint("json_schema", '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}'),
    "choices": Constraint("choice", json.dumps([f"c{each}" for each in range(3000)])),
    "rules": Constraint(
        "grammar", "start: r0\n" + "\n".join(f"r{n}: r{n + 1} r{n + 1}" for n in range(700)) + '\nr700: "a"'
    ),
    "ambiguous": Constraint("grammar", 'start: x x x x x x\nx: x x | "a" | ""'),
}


@pytest.mark.parametrize(
    "constraint",
    [*(Constraint("json_schema", source) for source in HOSTILE.values()), *HOSTILE_OTHERS.values()],
    ids=[*HOSTILE, *HOSTILE_OTHERS],
)
def test_hostile_ones_are_refused_soon(constraint):
    assert len(constraint.source) <= MAX_CONSTRAINT_CHARS + 20_000
    started = time.monotonic()
    with pytest.raises(GrammarError):
        compiling.compile_constraint(constraint, TABLE)
    assert time.monotonic() - started < HANGS_S


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
    grammar = compiling.compile_constraint(Constraint("json_schema", json.dumps(schema)), TABLE)
    assert not grammar.begin().is_error()


def all_to_all(num: int) -> dict[str, object]:
    """So many definitions, each of which leads to each, as those of a programming language's syntax do."""
    names = [f"d{each}" for each in range(num)]
    schema = {"properties": {f"x{name}": {"$ref": f"#/$defs/{name}"} for name in names}}
    return {"$defs": dict.fromkeys(names, schema), "$ref": "#/$defs/d0"}


def test_definitions_that_refer_to_each_other_are_not_followed_for_ever(monkeypatch):
    check_schema(all_to_all(12))
    monkeypatch.setattr(bounds, "MAX_VISITS", 500)
    with pytest.raises(GrammarError, match="definitions that refer to each other"):
        check_schema(all_to_all(12))


@pytest.mark.parametrize("constraint", COSTLY.values(), ids=COSTLY)
def test_costly_ones_cost_within_bounds_while_they_write(constraint):
    started = time.monotonic()
    try:
        babbler, output = Babbler(1, constraint), list[int]()
        for _ in range(20):
            outcome = babbler.round(output)
            output += outcome.tokens
            if outcome.failed or outcome.tokens[-1] == 0:
                break
    except GrammarError:
        pass
    assert time.monotonic() - started < HANGS_S


@pytest.fixture
def compiled(monkeypatch) -> list[Constraint]:
    """All that was compiled."""
    found, real = list[Constraint](), compiling._compile

    def noting(one, table):
        found.append(one)
        return real(one, table)

    monkeypatch.setattr(compiling, "_compile", noting)
    return found


def test_what_was_compiled_beforehand_is_not_compiled_again(compiled):
    grammars = Grammars(VOCABULARY)
    good, wrong = Constraint("regex", "ab"), Constraint("regex", "a(")
    for number, each in enumerate((good, wrong)):
        grammars.offer(each, grammars.compiled(each))
        problem = grammars.problem(b"%d" % number, each)
        assert (problem is None) is (each is good)
    assert compiled == [good, wrong]
    grammars.offer(good, grammars.compiled(good))
    grammars.hold(b"1", good)
    assert grammars.problem(b"1", good) is None
    assert Matchers(grammars).of(b"1", good, ()).allowed([]).any()
    assert len(compiled) == 3


def test_of_a_wrong_one_only_the_reason_is_kept(monkeypatch):
    """An exception that was raised has the frames that it went through, with everything that was parsed in them."""

    class Parsed:
        pass

    parsed = list[weakref.ref[Parsed]]()

    def refuse(one, table):
        local = Parsed()
        parsed.append(weakref.ref(local))
        raise GrammarError("wrong")

    monkeypatch.setattr(compiling, "_compile", refuse)
    compiled = Grammars(VOCABULARY).compiled(Constraint("regex", "a"))
    gc.collect()
    assert str(compiled) == "wrong"
    assert [one() for one in parsed] == [None]


def test_what_one_session_holds_no_other_has(compiled):
    """Else the time would tell it what others have sent, and one text's cost would end another."""
    grammars, form = Grammars(VOCABULARY), Constraint("regex", "a")
    grammars.hold(b"1", form)
    grammars.hold(b"2", form)
    assert compiled == [form] * 2
    assert grammars.of(b"1", form) is grammars.of(b"1", form)
    assert grammars.of(b"1", form) is not grammars.of(b"2", form)
    grammars.release(b"1")
    assert grammars.holders == [b"2"]
    assert not grammars.holds(b"1", form)
    grammars.of(b"3", form)
    assert compiled == [form] * 3


def test_a_session_holds_two_at_most_the_first_and_the_newest():
    grammars = Grammars(VOCABULARY)
    forms = [Constraint("regex", source) for source in "abcd"]
    for each in forms:
        grammars.hold(b"1", each)
    assert [grammars.holds(b"1", each) for each in forms] == [True, False, False, True]
    grammars.release(b"1", but=forms[3])
    assert [grammars.holds(b"1", each) for each in forms] == [False, False, False, True]


def test_a_wrong_one_is_not_held():
    grammars = Grammars(VOCABULARY)
    wrong = Constraint("regex", "a(")
    with pytest.raises(GrammarError):
        grammars.hold(b"1", wrong)
    with pytest.raises(GrammarError):
        grammars.of(b"1", wrong)


def test_several_threads_may_ask():
    grammars, found = Grammars(VOCABULARY), list[str | None]()
    sources = [f"[ab]{{1,{each}}}" for each in range(1, 9)]

    def ask() -> None:
        found.extend(grammars.problem(b"1", Constraint("regex", source)) for source in sources)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [None] * 32


def test_a_vocabulary_that_cannot_be_read_is_named():
    no_end = Vocabulary(name="x", tokenizer=VOCABULARY.tokenizer, tokenizer_fingerprint="", eos_ids=(), num_tokens=4096)
    no_bytes = Vocabulary(name="x", tokenizer=object(), tokenizer_fingerprint="", eos_ids=(0,), num_tokens=4096)
    assert "ends a text" in str(Grammars(no_end).problem(b"1", Constraint("regex", "a")))
    assert "fast tokenizer" in str(Grammars(no_bytes).problem(b"1", Constraint("regex", "a")))
