"""The five kinds of constraint as one grammar text for llguidance, checked for what makes them too costly.

JSON is written as Python's `json.dumps` writes it by default: `, ` and `: ` and no other blanks. So nearly all that is
not a value is forced, and a model cannot lose itself in blanks. Knows nothing about tokens.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from llguidance import LLMatcher

from goodspeed.errors import GrammarError
from goodspeed.grammar.bounds import MAX_CHOICE_CHARS, MAX_CHOICES, check_grammar, check_length, check_schema
from goodspeed.grammar.embedded import json_rule, resolved
from goodspeed.grammar.forced.rules import of_rules
from goodspeed.grammar.forced.runs import Run, fixed
from goodspeed.grammar.forced.schemas import of_schema
from goodspeed.grammar.literals import check_literal, check_pattern
from goodspeed.grammar.repeats import check_repeats, longest_way
from goodspeed.wire.fields import ConstraintKind
from goodspeed.wire.generation import Constraint

_OPTIONS: Any = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "lenient": False,  # keywords that are not implemented are refused
    "coerce_one_of": False,  # anyOf in place of oneOf would let wrong answers through
}

_UNFORCED = '%llguidance {"no_forcing": true}'


def to_grammar(constraint: Constraint) -> str:
    """Returns llguidance's grammar for a constraint; GrammarError says what is wrong with its source."""
    try:
        return _MAKERS[constraint.kind](constraint.source)
    except ValueError as error:  # lone surrogates, say
        raise GrammarError(f"its source cannot be read: {str(error)[:200]}") from error
    except RecursionError as error:
        raise GrammarError("its source is nested too deep; flatten it") from error
    except ArithmeticError as error:
        raise GrammarError("a number in its source is too large; write a smaller number") from error


def _json_object(source: str) -> str:
    if source:
        raise GrammarError("json_object has no source; send a json_schema for one of your own")
    return str(LLMatcher.grammar_from_json_schema('{"type": "object"}', overrides=_OPTIONS))


def _json_schema(source: str) -> str:
    schema = _parse(source, "the schema")
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarError(f"the schema is {_named(schema)}; send a JSON object")
    check_schema(schema)
    if (run := of_schema(schema)).is_long:
        return _lark("start: json\n" + json_rule("json", schema, _OPTIONS), run)
    return str(LLMatcher.grammar_from_json_schema(source if schema else "{}", overrides=_OPTIONS))


def _regex(source: str) -> str:
    if not source:
        raise GrammarError("the regular expression is empty; send one that some text matches")
    if (len(source) - len(source.rstrip("\\"))) % 2:
        raise GrammarError("the regular expression ends in a backslash; write two for the character, or leave it out")
    check_length("the regular expression", source)
    check_repeats(source)
    check_pattern("the regular expression", source)
    [grammar] = json.loads(LLMatcher.grammar_from_regex(source))["grammars"]
    return _lark(grammar["lark_grammar"], fixed(4 * longest_way(source)))


def _choice(source: str) -> str:
    choices = _parse(source, "the choices")
    is_list = isinstance(choices, list) and all(isinstance(each, str) and each for each in choices)
    if not is_list or not choices:
        raise GrammarError("the choices are no list of texts that are not empty; send at least one")
    if len(choices) > MAX_CHOICES or len(source) > MAX_CHOICE_CHARS:
        what = f"{len(choices)} choices with {len(source)} characters"
        raise GrammarError(f"{what} are too many; {MAX_CHOICES} with {MAX_CHOICE_CHARS} are the most")
    for each in choices:
        check_literal("a choice", each)
    # One terminal: as alternatives of a rule they would cost a place in every row of the parser.
    alternatives = " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)
    longest = max(len(each.encode()) for each in choices)
    return _lark(f"start: CHOICE\nCHOICE: {alternatives}", fixed(longest))


def _grammar(source: str) -> str:
    found = resolved(source, _OPTIONS)
    check_grammar(found.rest)
    runs = {name: of_schema(schema) for name, schema in found.schemas.items()}
    return _lark(found.source, of_rules(found.rest, runs))


def _lark(source: str, run: Run) -> str:
    """Returns the grammar, which forces nothing where it could force too much; run: what it may force.

    GrammarError where no text of it ends.
    """
    if run.is_endless:
        raise GrammarError("no text satisfies it: it always has itself in it; let it end, or leave a reference out")
    return str(LLMatcher.grammar_from_lark(f"{source}\n{_UNFORCED}\n" if run.is_long else source))


_MAKERS: Mapping[ConstraintKind, Callable[[str], str]] = {
    "json_object": _json_object,
    "json_schema": _json_schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _parse(source: str, what: str) -> Any:
    try:
        return msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarError(f"{what} cannot be read as JSON: {error}") from error


def _named(value: object) -> str:
    return json.dumps(value)[:40]
