"""What makes a constraint too costly before it is compiled, told by its size and shape.

llguidance counts what it does ("fuel"), and stops. Two things it does not count, and they are bounded here: each
pattern that has to hold at the same place as others may double the work (`allOf`, a `$ref` beside a pattern, `&` in a
grammar), and the properties of one object cost their square. Knows nothing about llguidance.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from goodspeed.errors import GrammarError

MAX_AT_ONCE = 5
"""Patterns, formats and lengths that one text has to keep at the same time: 5 take about 2 ms, 12 take a second."""

MAX_PROPERTIES = 256
"""Properties of one object; 2,000 in all. They take about 10 ms."""

MAX_ALL_PROPERTIES = 2_000

MAX_PATTERN_PROPERTIES = 8
"""Pattern properties of one object: each is compared with each other."""

MAX_DEPTH = 64
"""Schemas within schemas."""

MAX_GRAMMAR_CHARS = 16_384
"""Characters of a regular expression or a grammar: about 25 ms."""

MAX_CHOICES, MAX_CHOICE_CHARS = 4_096, 32_768

_WITHIN = ("properties", "patternProperties")
_LISTS = ("prefixItems",)
_ONE = ("items", "additionalProperties", "additionalItems", "unevaluatedProperties", "propertyNames", "contains")
_TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"i?|/(?:\\.|[^/\\\n])+/[imslux]*|//[^\n]*|#[^\n]*')


def check_schema(schema: object) -> None:
    """Raises GrammarError for a schema that is too wide or too deep, or has too many patterns at one place."""
    check_schemas([schema], MAX_ALL_PROPERTIES)


def check_schemas(schemas: Iterable[object], max_properties: int) -> None:
    """Raises GrammarError as `check_schema`, for schemas that are served together."""
    num_properties = 0
    for schema in schemas:
        sizes = _Sizes(schema)
        sizes.at_once(schema, 0, ())
        num_properties += sizes.num_properties
    if num_properties > max_properties:
        raise GrammarError(f"the schema has {num_properties} properties; {max_properties} are the most")


class _Sizes:
    """Walks through a schema once; a definition is counted once, however often it is referred to."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._counted: set[int] = set()
        self.num_properties = 0

    def at_once(self, schema: object, depth: int, path: tuple[str, ...]) -> int:
        """Most patterns that hold at one place at or below this schema, at most; path: references that led here."""
        if not isinstance(schema, Mapping):
            return 0
        if depth > MAX_DEPTH:
            raise GrammarError(f"the schema is nested more than {MAX_DEPTH} deep; flatten it")
        if "x-guidance" in schema:
            raise GrammarError("x-guidance is not taken in a schema; leave it out")
        own = ("pattern" in schema) + ("format" in schema) + ("minLength" in schema or "maxLength" in schema)
        below = max([own, *(self.at_once(each, depth + 1, path) for each in self._children(schema))])
        below += sum(self.at_once(each, depth + 1, path) for each in _list(schema, "allOf"))
        for key in ("anyOf", "oneOf"):
            below += max((self.at_once(each, depth + 1, path) for each in _list(schema, key)), default=0)
        for key in ("$defs", "definitions"):
            for each in _values(schema, key):
                self.at_once(each, depth + 1, path)
        below += self._referred(schema.get("$ref"), depth, path)
        if below > MAX_AT_ONCE:
            what = f"more than {MAX_AT_ONCE} patterns, formats or lengths have to hold at the same place"
            raise GrammarError(f"{what} of the schema; leave some out of allOf, or out of what is referred to")
        return below

    def _children(self, schema: Mapping[str, Any]) -> Iterable[object]:
        if id(schema) not in self._counted:
            self._counted.add(id(schema))
            self.num_properties += len(list(_values(schema, "properties")))
        if len(list(_values(schema, "properties"))) > MAX_PROPERTIES:
            raise GrammarError(f"an object of the schema has more than {MAX_PROPERTIES} properties; split it")
        if len(list(_values(schema, "patternProperties"))) > MAX_PATTERN_PROPERTIES:
            raise GrammarError(f"an object has more than {MAX_PATTERN_PROPERTIES} pattern properties; split it")
        for key in _WITHIN:
            yield from _values(schema, key)
        for key in _LISTS:
            yield from _list(schema, key)
        yield from (schema[key] for key in _ONE if key in schema)
        yield from _list(schema, "items")

    def _referred(self, reference: object, depth: int, path: tuple[str, ...]) -> int:
        """As `at_once`, of a definition of this schema; one that refers to itself is counted where it begins."""
        if not isinstance(reference, str) or not reference.startswith("#") or reference in path:
            return 0
        if reference not in self._known:
            found = _resolve(self._root, reference)
            self._known[reference] = self.at_once(found, depth + 1, (*path, reference))
        return self._known[reference]


def check_grammar(source: str) -> None:
    """Raises GrammarError for a Lark grammar that is too long, intersects too much, or has another one in it."""
    check_length("the grammar", source)
    rest = _TEXT.sub("", source)
    if rest.count("&") + rest.count("~") > MAX_AT_ONCE - 1:
        raise GrammarError(f"the grammar has & or ~ more than {MAX_AT_ONCE - 1} times; write it as alternatives")
    if found := re.search(r"%(?!ignore\b|import\b)\w*", rest):
        what = "only %ignore, %import, and %json in a rule alone on its line"
        raise GrammarError(f"{found.group()} is not taken in a grammar, {what}; write it as rules")


def check_length(what: str, source: str) -> None:
    """Raises GrammarError for a regular expression or a grammar that is too long."""
    if len(source) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"{what} has {len(source)} characters; {MAX_GRAMMAR_CHARS} are the most")


def _resolve(root: object, reference: str) -> object:
    """What a JSON pointer in a fragment names; None where there is nothing, which the compiler refuses."""
    found: Any = root
    for part in reference.lstrip("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, Mapping):
            found = found.get(part)
        else:
            return None
    return found


def _values(schema: Mapping[str, Any], key: str) -> Iterable[object]:
    value = schema.get(key)
    return value.values() if isinstance(value, Mapping) else ()


def _list(schema: Mapping[str, Any], key: str) -> Iterable[object]:
    value = schema.get(key)
    return value if isinstance(value, list) else ()
