"""JSON schemas inside of a grammar: a rule `NAME: %json {...}`, alone on a line, is JSON that keeps the schema.

Calls of tools are such grammars: markers around JSON. Schemas are bounded as they are when they stand alone, and JSON
is written in the same way. Knows nothing about llguidance but how it spells options.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from goodspeed.errors import GrammarError
from goodspeed.grammar.bounds import check_schemas

MAX_SCHEMAS, MAX_PROPERTIES = 256, 1_000
"""Schemas of one grammar, and the properties of all of them: alternatives cost more than one schema does."""

_RULE = re.compile(r"^([a-z_][a-z0-9_]*): %json (\{.*\})$")


class Resolved(NamedTuple):
    """A grammar, and what is in it."""

    source: str  # for llguidance
    rest: str  # what of it is no schema
    schemas: dict[str, dict[str, Any]]  # by the names of their rules


def resolved(source: str, options: Mapping[str, Any]) -> Resolved:
    """Reads a grammar; GrammarError for a schema that is too costly.

    A schema may have one option of its own, `"x-guidance": {"lenient": true}`: keywords that are not implemented are
    then passed over.
    """
    written, rest, schemas = list[str](), list[str](), dict[str, dict[str, Any]]()
    for line in source.split("\n"):
        found = _RULE.match(line)
        if found is None:
            written.append(line)
            rest.append(line)
            continue
        name, schema, own = found[1], *_schema(found[2])
        if name in schemas:
            raise GrammarError(f'the rule "{name}" is defined twice; join the two by |')
        schemas[name] = schema
        written.append(json_rule(name, schema, {**options, **own}))
        rest.append(f'{name}: ""')
    if len(schemas) > MAX_SCHEMAS:
        raise GrammarError(f"the grammar has {len(schemas)} schemas; {MAX_SCHEMAS} are the most")
    check_schemas(schemas.values(), MAX_PROPERTIES)
    return Resolved("\n".join(written), "\n".join(rest), schemas)


def json_rule(name: str, schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Returns a rule for JSON that keeps a schema."""
    return f"{name}: %json {json.dumps({'x-guidance': options, **schema})}"


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
