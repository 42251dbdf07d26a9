"""How long what a form has word for word may be: constants, choices, names of properties, fixed parts of patterns."""

import json
from collections.abc import Mapping
from typing import Any

from goodspeed.errors import GrammarError
from goodspeed.grammar.repeats import longest_way

MAX_LITERAL = 4_096
"""Bytes of one literal, or characters and classes in a row in a pattern, with each repetition at its least count."""

MAX_DIGITS = 308
"""Digits of a whole number: no larger one is a number for others."""


def check_literals(schema: Mapping[str, Any]) -> None:
    """Raises GrammarError for a literal of a schema, but not of those below it, that is too long."""
    values = schema.get("enum")
    for value in [*(values if isinstance(values, list) else ()), *([schema["const"]] if "const" in schema else ())]:
        what = "const" if "const" in schema else "a value of enum"
        if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
            raise GrammarError(f"{what} has more than {MAX_DIGITS} digits; send it as a text, or a smaller number")
        check_literal(what, json.dumps(value, ensure_ascii=False))
    properties, required = schema.get("properties"), schema.get("required")
    for name in [
        *(properties if isinstance(properties, Mapping) else ()),
        *(required if isinstance(required, list) else ()),
    ]:
        check_literal("the name of a property", str(name))
    patterns = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(patterns if isinstance(patterns, Mapping) else ())):
        if isinstance(pattern, str):
            check_pattern("a pattern of the schema", pattern)


def check_literal(what: str, text: str) -> None:
    """Raises GrammarError for a text that is too long."""
    if (num_bytes := len(text.encode("utf-8", "surrogatepass"))) > MAX_LITERAL:
        raise GrammarError(f"{what} has {num_bytes} bytes; {MAX_LITERAL} are the most, shorten it")


def check_pattern(what: str, pattern: str) -> None:
    """Raises GrammarError for a regular expression that has too much in a row."""
    if (way := longest_way(pattern)) > MAX_LITERAL:
        what = f"{what} has {way} characters in a row, with each repetition at its least count"
        raise GrammarError(f"{what}; {MAX_LITERAL} are the most, shorten it or lower the counts")
