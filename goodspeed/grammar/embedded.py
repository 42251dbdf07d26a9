"""JSON schemas inside of a grammar: a rule `NAME: %json {...}`, alone on a line, is JSON that keeps the schema.

Calls of tools are such grammars: markers around JSON. Schemas are bounded as they are when they stand alone, and JSON
is written in the same way. Knows nothing about llguidance but how it spells options.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from goodspeed.errors import GrammarError
from goodspeed.grammar.bounds import check_schemas

MAX_SCHEMAS, MAX_PROPERTIES = 256, 1_000
"""Schemas of one grammar, and the properties of all of them: alternatives cost more than one schema does."""

_RULE = re.compile(r"^([a-z_][a-z0-9_]*: %json )(\{.*\})$")


def resolved(source: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the grammar for llguidance, and what of it is no schema; GrammarError for a schema that is too costly.

    A schema may have one option of its own, `"x-guidance": {"lenient": true}`: keywords that are not implemented are
    then passed over.
    """
    written, rest, schemas = list[str](), list[str](), list[Any]()
    for line in source.split("\n"):
        found = _RULE.match(line)
        if found is None:
            written.append(line)
            rest.append(line)
            continue
        schema, own = _schema(found[2])
        schemas.append(schema)
        written.append(found[1] + json.dumps({"x-guidance": {**options, **own}, **schema}))
        rest.append(found[1].replace("%json ", '""'))
    if len(schemas) > MAX_SCHEMAS:
        raise GrammarError(f"the grammar has {len(schemas)} schemas; {MAX_SCHEMAS} are the most")
    check_schemas(schemas, MAX_PROPERTIES)
    return "\n".join(written), "\n".join(rest)


def _schema(text: str) -> tuple[dict[str, Any], dict[str, bool]]:
    """Returns a schema and its own options."""
    try:
        schema = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarError(f"a schema of the grammar cannot be read as JSON: {error}") from error
    own = schema.pop("x-guidance", {})
    if not isinstance(own, dict) or not own.keys() <= {"lenient"} or not isinstance(own.get("lenient", False), bool):
        raise GrammarError('x-guidance is not taken in a schema, but for {"lenient": true}; leave it out')
    return schema, own
