"""JSON schemas inside of grammars: what is taken, what is refused, and how JSON is written there."""

import json

import pytest

from goodspeed.errors import GrammarError
from goodspeed.grammar.embedded import MAX_SCHEMAS, resolved
from goodspeed.grammar.sources import to_grammar
from goodspeed.wire.generation import Constraint

INTEGER = json.dumps({"type": "integer"})


def test_options_are_put_into_each_schema() -> None:
    source, rest, schemas = resolved(f'start: "a" one\none: %json {INTEGER}', {"lenient": False})
    assert source == 'start: "a" one\none: %json {"x-guidance": {"lenient": false}, "type": "integer"}'
    assert rest == 'start: "a" one\none: ""'
    assert schemas == {"one": {"type": "integer"}}
    lenient = json.dumps({"x-guidance": {"lenient": True}, "type": "integer"})
    assert '"lenient": true' in resolved(f"one: %json {lenient}", {"lenient": False})[0]


DEEP = "{" + '"items": {' * 200 + "}" * 201
WIDE = json.dumps({"properties": {f"p{i}": {} for i in range(250)}})


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("start: %json {", "%json is not taken"),
        ("start: %json {nothing}", "cannot be read as JSON"),
        (f"start: %json {INTEGER} | %json {INTEGER}", "cannot be read as JSON"),
        (f'start: "a" %json {INTEGER}', "%json is not taken"),
        ("start: %lark {}", "%lark is not taken"),
        ('start: %json {"x-guidance": {"whitespace_flexible": true}}', "x-guidance is not taken"),
        ('start: %json {"x-guidance": {"lenient": 1}}', "x-guidance is not taken"),
        ('start: %json {"items": {"x-guidance": {"lenient": true}}}', "x-guidance is not taken"),
        (f"start: %json {DEEP}", "nested more than"),
        ("\n".join(f"a{i}: %json {WIDE}" for i in range(5)), "1250 properties"),
        ("\n".join(f"a{i}: %json {{}}" for i in range(MAX_SCHEMAS + 1)), "257 schemas"),
    ],
)
def test_refused(source: str, what: str) -> None:
    with pytest.raises(GrammarError, match=what):
        to_grammar(Constraint("grammar", source))
