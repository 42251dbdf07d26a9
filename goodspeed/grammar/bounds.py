"""What makes a constraint too costly before it is compiled, told by its size and shape.

llguidance counts what it does ("fuel"), and stops. Three things it does not count, and they are bounded here: each
pattern that has to hold at the same place as others may double the work (`allOf`, a `$ref` beside a pattern, `&` in a
grammar), the properties of one object cost their square, and `multipleOf` its number (`multiples.py`). Knows nothing
about llguidance.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from goodspeed.errors import GrammarError
from goodspeed.grammar.literals import check_literal, check_literals, check_pattern
from goodspeed.grammar.multiples import check_multiple, check_multiples, is_costly, remainders, together
from goodspeed.grammar.references import check_references, is_plain, resolve
from goodspeed.grammar.repeats import check_repeats, check_written_out, repeated

MAX_AT_ONCE = 5
"""Patterns, formats and lengths that one text has to keep at the same time: 5 take about 2 ms, 12 take a second."""

MAX_PROPERTIES = 256
"""Properties of one object; 2,000 in all. They take about 10 ms."""

MAX_ALL_PROPERTIES = 2_000

MAX_PATTERN_PROPERTIES = 8
"""Pattern properties of one object: each is compared with each other."""

MAX_DEPTH = 64
"""Schemas within schemas."""

MAX_VISITS = 20_000
"""Schemas that are looked at, those that definitions in a circle lead to again among them."""

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
    num_properties = num_multiples = 0
    multiples: list[frozenset[int]] = []
    for schema in schemas:
        check_references(schema)
        sizes = _Sizes(schema)
        multiples.append(sizes.load_all().multiples)
        num_properties += sizes.num_properties
        num_multiples += sizes.num_multiples
    together(multiples)
    check_multiples(num_multiples)
    if num_properties > max_properties:
        raise GrammarError(f"the schema has {num_properties} properties; {max_properties} are the most")


class _Load(NamedTuple):
    """What a schema and those below it have."""

    at_once: int = 0  # patterns that hold at one place, at most
    multiples: frozenset[int] = frozenset()  # remainders of `multipleOf`, at any place


class _Sizes:
    """Walks through a schema once; a definition is counted once, however often it is referred to."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[str, _Load] = {}
        self._within: dict[str, _Load] = {}  # of a circle, seen from where it was entered
        self._counted: set[int] = set()
        self._met: set[str] = set()  # references that were not followed again, since they led to themselves
        self._num_visits = 0
        self.num_properties = 0
        self.num_multiples = 0

    def load_all(self) -> _Load:
        """Returns what holds in the whole schema; each definition is looked at with all that it leads to."""
        found = self.load(self._root, 0, ())
        for reference in list(self._known):
            self.load(resolve(self._root, reference), 0, ())
        return found

    def load(self, schema: object, depth: int, path: tuple[str, ...]) -> _Load:
        """Returns what holds at or below this schema; path: references that led here."""
        if not isinstance(schema, Mapping):
            return _Load()
        self._check(schema, depth)
        own = ("pattern" in schema) + ("format" in schema) + ("minLength" in schema or "maxLength" in schema)
        below = [_Load(own, self._own_multiples(schema))]
        below += [self.load(each, depth + 1, path) for each in self._children(schema)]
        parts = [_Load(max(each.at_once for each in below), frozenset().union(*(each.multiples for each in below)))]
        parts += [self.load(each, depth + 1, path) for each in _list(schema, "allOf")]
        for key in ("anyOf", "oneOf"):
            choices = [self.load(each, depth + 1, path) for each in _list(schema, key)]
            most = max((each.at_once for each in choices), default=0)
            parts.append(_Load(most, together(each.multiples for each in choices)))
        for key in ("$defs", "definitions"):
            for each in _values(schema, key):
                self.load(each, depth + 1, path)
        parts.append(self._referred(schema.get("$ref"), depth, path))
        at_once = sum(each.at_once for each in parts)
        if at_once > MAX_AT_ONCE:
            what = f"more than {MAX_AT_ONCE} patterns, formats or lengths have to hold at the same place"
            raise GrammarError(f"{what} of the schema; leave some out of allOf, or out of what is referred to")
        return _Load(at_once, together(each.multiples for each in parts))

    def _check(self, schema: Mapping[str, Any], depth: int) -> None:
        self._num_visits += 1
        if depth > MAX_DEPTH:
            raise GrammarError(f"the schema is nested more than {MAX_DEPTH} deep; flatten it")
        if self._num_visits > MAX_VISITS:
            raise GrammarError("the schema has too many parts, or definitions that refer to each other; write fewer")
        if id(schema) not in self._counted:
            for pattern in (schema.get("pattern"), *_keys(schema, "patternProperties")):
                if isinstance(pattern, str):
                    check_repeats(pattern)
            check_literals(schema)
        if "x-guidance" in schema:
            raise GrammarError("x-guidance is not taken in a schema; leave it out")

    def _own_multiples(self, schema: Mapping[str, Any]) -> frozenset[int]:
        if "multipleOf" not in schema:
            return frozenset()
        own = remainders(schema["multipleOf"])
        check_multiple(own)
        if id(schema) not in self._counted and is_costly(own):
            self.num_multiples += own
        return frozenset({own})

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

    def _referred(self, reference: object, depth: int, path: tuple[str, ...]) -> _Load:
        """As `load`, of a definition of this schema; one that refers to itself is counted where it begins."""
        if not isinstance(reference, str) or not is_plain(reference):
            return _Load()
        if reference in path:
            self._met.add(reference)
            return _Load()
        if reference in self._known:
            return self._known[reference]
        if path and reference in self._within:
            return self._within[reference]
        met, self._met, num_within = self._met, set(), len(self._within)
        found = self.load(resolve(self._root, reference), depth + 1, (*path, reference))
        if self._met <= {reference}:
            self._known[reference] = found
            while len(self._within) > num_within:  # what lacks this one, since it was met inside of it
                self._within.popitem()
        else:
            self._within[reference] = found
        self._met = met | self._met - {reference}
        return found


def check_grammar(source: str) -> None:
    """Raises GrammarError for a Lark grammar that is too long, intersects too much, or has another one in it."""
    check_length("the grammar", source)
    rest = _TEXT.sub("", source)
    times = repeated(rest)
    check_written_out(times)
    for found in _TEXT.finditer(source):
        if found[0].startswith('"'):
            check_literal("a text of the grammar", found[0])
            check_written_out(times * len(found[0]) if times > 1 else 0)
        elif found[0].startswith("/") and not found[0].startswith("//"):
            text, _, flags = found[0].rpartition("/")
            check_repeats(f"(?{flags}:{text[1:]})" if flags else text[1:], times)
            check_pattern("a pattern of the grammar", text[1:])
    if rest.count("&") + rest.count("~") > MAX_AT_ONCE - 1:
        raise GrammarError(f"the grammar has & or ~ more than {MAX_AT_ONCE - 1} times; write it as alternatives")
    if directive := re.search(r"%(?!ignore\b|import\b)\w*", rest):
        what = "only %ignore, %import, and %json in a rule alone on its line"
        raise GrammarError(f"{directive.group()} is not taken in a grammar, {what}; write it as rules")


def check_length(what: str, source: str) -> None:
    """Raises GrammarError for a regular expression or a grammar that is too long."""
    if len(source) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"{what} has {len(source)} characters; {MAX_GRAMMAR_CHARS} are the most")


def _keys(schema: Mapping[str, Any], key: str) -> Iterable[str]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else ()


def _values(schema: Mapping[str, Any], key: str) -> Iterable[object]:
    value = schema.get(key)
    return value.values() if isinstance(value, Mapping) else ()


def _list(schema: Mapping[str, Any], key: str) -> Iterable[object]:
    value = schema.get(key)
    return value if isinstance(value, list) else ()
