"""JSON schemas inside of grammars: what is taken, what is refused, and how JSON is written there."""

import json

import pytest

from goodspeed.constraint.sources import to_grammar
from goodspeed.errors import GrammarError
from goodspeed.wire.generation import Constraint

INTEGER = json.dumps({"type": "integer"})


def test_options_are_put_into_each_schema() -> None:
    assert '"whitespace_flexible": false' in to_grammar(Constraint("grammar", f'start: "a" one\none: %json {INTEGER}'))
    lenient = json.dumps({"x-guidance": {"lenient": True}, "type": "integer"})
    assert '"lenient": true' in to_grammar(Constraint("grammar", f"one: %json {lenient}"))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("start: %json {", "%json is not taken"),
        ("start: %json {nothing}", "cannot be read as JSON"),
        (f"start: %json {INTEGER} | %json {INTEGER}", "cannot be read as JSON"),
        (f'start: "a" %json {INTEGER}', "%json is not taken"),
        ("start: %lark {}", "%lark is not taken"),
        ('%llguidance {"no_forcing": false}\nstart: "a"', "%llguidance is not taken"),
        ('start: %json {"x-guidance": {"whitespace_flexible": true}}', "x-guidance is not taken"),
        ('start: %json {"x-guidance": {"lenient": 1}}', "x-guidance is not taken"),
        (f"start: a\na: %json {INTEGER}\na: %json {INTEGER}", "defined twice"),
    ],
)
def test_refused(source: str, what: str) -> None:
    with pytest.raises(GrammarError, match=what):
        to_grammar(Constraint("grammar", source))
