"""Translates the five kinds of constraint into llguidance grammars, compiles these, and says what is wrong with them.

JSON output has the spacing of Python's `json.dumps` defaults: `, ` and `: ` and no other whitespace, so a model cannot
emit whitespace endlessly. A grammar may contain schemas: a rule `NAME: %json {...}`, alone on a line, is JSON that
satisfies the schema.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from llguidance import LLMatcher, LLParserLimits

from goodspeed.constraint.forcing import MAX_BYTES, of_grammar, of_pattern, of_schema
from goodspeed.constraint.schemas import enforceable
from goodspeed.constraint.tokens import TokenTable
from goodspeed.errors import ConstraintError
from goodspeed.untrusted import sanitize
from goodspeed.wire.fields import ConstraintKind
from goodspeed.wire.generation import Constraint

_OPTIONS = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "lenient": False,  # unimplemented keywords are refused
    "coerce_one_of": False,  # anyOf instead of oneOf would accept invalid answers
}

_NO_ESCAPES = {"json_allowed_escapes": 'nrbtf\\"'}
"""Without it a name that is not described may be a described one, written as `\\u0061`, with any value."""

_UNFORCED = '\n%llguidance {"no_forcing": true}\n'

_RULE = re.compile(r"([a-z_][a-z0-9_]*)[ \t]*:[ \t]*%json[ \t]*(\{.*\})\s*")
_TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"i?|/(?:\\.|[^/\\\n])+/[imslux]*|//[^\n]*|#[^\n]*')
_NAMED = re.compile(rf"{_TEXT.pattern}|(?P<name><[^<>\s\[\]]+>)")
_DIRECTIVE = re.compile(r"%(?!ignore\b|import\b)\w*")


def to_grammar(constraint: Constraint, special_ids: Mapping[str, int]) -> str:
    """Returns llguidance's grammar for a constraint; ConstraintError with the reason if its source is invalid.

    special_ids: of special tokens by name, which a grammar may have: there they are written as ids.
    """

    def by_id(found: re.Match[str]) -> str:
        return f"<[{special_ids[found['name']]}]>" if found["name"] in special_ids else found[0]

    try:
        source, num_forced = _MAKERS[constraint.kind](constraint.source)
        if constraint.kind == "grammar":
            source = _NAMED.sub(by_id, source)
        return str(LLMatcher.grammar_from_lark(source + _UNFORCED * (num_forced > MAX_BYTES)))
    except (ValueError, RecursionError) as error:  # e.g. lone surrogates, or lists nested a thousand deep
        raise ConstraintError(f"its source cannot be read: {str(error)[:200]}") from error


Written: TypeAlias = tuple[str, float]
"""A grammar in Lark syntax, and the most bytes that it may force (`forcing.py`)."""


def _json_object(source: str) -> Written:
    if source:
        raise ConstraintError("json_object takes no schema; send it as json_schema")
    return _json('{"type": "object"}')


def _json(source: str) -> Written:
    schema = _parse(source, "the schema")
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ConstraintError(f"the schema is {source[:40]}; send a JSON object")
    if "x-guidance" in schema:
        raise ConstraintError("a schema must not have x-guidance; leave it out")
    rule, num_forced = _rule("json", schema, {})
    return f"start: json\n{rule}", num_forced


def _regex(source: str) -> Written:
    if not source:
        raise ConstraintError("the regular expression is empty; send one that some text matches")
    if (len(source) - len(source.rstrip("\\"))) % 2:
        raise ConstraintError(
            "the regular expression ends in a backslash; write two for the character, or leave it out"
        )
    [grammar] = json.loads(LLMatcher.grammar_from_regex(source))["grammars"]
    return str(grammar["lark_grammar"]), of_pattern(source)


def _choice(source: str) -> Written:
    choices = _parse(source, "the choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, str) and each for each in choices):
        raise ConstraintError("the choices must be a list of nonempty strings; send at least one")
    # One terminal: alternatives of a rule would each cost an item in every row of the parser.
    terminal = " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)
    return f"start: CHOICE\nCHOICE: {terminal}", max(len(each.encode()) for each in choices)


def _grammar(source: str) -> Written:
    """Schemas in the grammar may have one option, `"x-guidance": {"lenient": true}`: unknown keywords are ignored."""
    written, rules, schemas = list[str](), list[str](), dict[str, float]()
    for line in source.split("\n"):
        if (found := _RULE.fullmatch(line)) is None:
            written.append(line)
            rules.append(line)
            if directive := _DIRECTIVE.search(_TEXT.sub("", line)):
                what = "only %ignore, %import, and %json in a rule alone on its line"
                raise ConstraintError(f"{directive[0]} is not supported in a grammar, {what}; write it as rules")
            continue
        schema = _parse(found[2], "a schema of the grammar")
        own = schema.pop("x-guidance", {})
        if own != {} and (not isinstance(own, dict) or [*own] != ["lenient"] or not isinstance(own["lenient"], bool)):
            raise ConstraintError('x-guidance in a schema must be {"lenient": true}; leave it out')
        if found[1] in schemas:
            raise ConstraintError(f'the rule "{found[1]}" is defined twice; join the two by |')
        rule, schemas[found[1]] = _rule(found[1], schema, own)
        written.append(rule)
    return "\n".join(written), of_grammar("\n".join(rules), schemas)


_MAKERS: Mapping[ConstraintKind, Callable[[str], Written]] = {
    "json_object": _json_object,
    "json_schema": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _rule(name: str, schema: dict[str, Any], own: Mapping[str, Any]) -> tuple[str, float]:
    """Returns a rule for JSON that satisfies a schema, and the most bytes that it forces. own: the schema's options."""
    found, has_open_names = enforceable(schema, is_lenient=own.get("lenient", False))
    options = {**_OPTIONS, **(_NO_ESCAPES if has_open_names else {}), **own}
    return f"{name}: %json {json.dumps({'x-guidance': options, **found})}", of_schema(found)


def _parse(source: str, what: str) -> Any:
    try:
        return msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConstraintError(f"{what} cannot be read as JSON: {error}") from error


# -- compiled ----------------------------------------------------------------------------------------------------------

MAX_END = 140
"""Characters that a long message retains at each end: the beginning has the position, the end has the reason."""

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 30 ms to compile
    step_lexer_fuel=50_000,  # about 4 ms per mask
    step_max_items=10_000,
    max_items_in_row=2_000,
    max_lexer_states=5_000,  # per session, 2 kB each
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,  # else errors would quote the whole grammar
)
"""Cost limits of one grammar, in llguidance's units."""

NO_TEXT = "no text satisfies it; make its recursion end, or remove a contradictory part"

_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"\n\s*\d+ \| .*", re.DOTALL)
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Unsatisfiable schema: ", "no text satisfies it: "),
        (r"\s*while processing \S+", ""),
        (r"Unimplemented keys: ", "it has keywords that cannot be kept: "),
        (
            r"oneOf constraints are not supported\..*",
            'the members of "oneOf" may have values in common, so it cannot be kept; write "anyOf"',
        ),
        (
            r"circular references with sibling keys are not supported: .*",
            "a schema that refers to itself with other keywords beside the reference cannot be kept; leave these out",
        ),
        (
            r"lookarounds not supported yet; (?:Start|End)\w* in regex /(.*)/",
            r'the pattern "\1" has ^ or $ in its middle; write them at the ends',
        ),
    )
)
"""What llguidance says about schemas that only it understands, or with advice that cannot be followed here."""


def compiled_matcher(constraint: Constraint, table: TokenTable) -> LLMatcher:
    """Compiles a constraint; ConstraintError with llguidance's reason if it is invalid or allows no first token.

    llguidance's copies of a matcher share one lexer, including its state and its error, so one text's cost could fail
    other texts. So a matcher is compiled for each text.
    """
    matcher = LLMatcher(table.tokenizer, to_grammar(constraint, table.special_ids), log_level=0, limits=LIMITS)
    beginning = matcher if matcher.is_error() else matcher.deep_copy()
    if not beginning.is_error():
        beginning.compute_bitmask()
    if why := failure(beginning, constraint):
        raise ConstraintError(why)
    return matcher


def failure(matcher: LLMatcher, constraint: Constraint) -> str:
    """Returns a failed matcher's llguidance error on one line; "" if the matcher did not fail.

    Omits line and column unless the user wrote the grammar: otherwise they refer to generated source.
    """
    said = _EXCERPT.sub("", str(matcher.get_error()).replace("<non-verbose/>", "").strip())
    if constraint.kind == "grammar":
        said = _PLACE.sub(r"line \1, column \2: ", said)
    else:
        said = _PLACE.sub("", said).removeprefix("failed to compile JSON schema: ")
    said = " ".join(said.split())
    if "NoExtension" in said:
        said = NO_TEXT
    for pattern, words in _WORDS if constraint.kind != "regex" else ():
        said = pattern.sub(words, said)
    return sanitize(said if len(said) <= 2 * MAX_END else f"{said[:MAX_END]} ... {said[-MAX_END:]}")


def without_place(why: str) -> str:
    """Removes line and column from the error of a generated grammar, which the user never saw."""
    return re.sub(r"^line \d+, column \d+: (?:failed to compile JSON schema: )?", "", why)
