"""Bounds the longest run of forced bytes (bytes without alternative) from a constraint's source.

llguidance writes out and tokenizes the whole run at each row of a mask: up to 3 us a byte, and more for patterns (5 s
for `a{60000}`). No llguidance limit counts this cost, and a trial does not reach the later part of a text. So a
constraint that may force more than `MAX_BYTES` is compiled with forcing disabled. The bound is coarse, but never too
low: it adds up all parts of the source that may follow each other, and multiplies those that may follow themselves.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from math import inf, prod
from typing import Any

from goodspeed.constraint.references import PLACE
from goodspeed.constraint.schemas import FORMATS

MAX_BYTES = 2_048
MAX_COUNT = 16
"""Largest count in a pattern; above it the pattern is unbounded, since alternatives cost the count squared."""

MAX_NUMBER = 1e9
"""Numbers beyond this, and below its inverse, are unbounded: they may need more digits than the source has."""

FORMAT_BYTES, MARK_BYTES = 64, 6  # forced by a `format`; quotes and separators around a name or a value

_SAYS_NOTHING = frozenset("$defs definitions title description default examples deprecated x-guidance".split())
_COUNT = re.compile(r"\{\s*(\d+)")
_HEAD = re.compile(r"^[?!]?(\w+)(?:\[\w+\])?[ \t]*:", re.MULTILINE)
_PART = re.compile(
    r"""\s*(?: (?P<comment>//[^\n]*|\#[^\n]*) | (?P<literal>"(?:\\.|[^"\\\n])*"i?|<[^<>\s]*>)
    | (?P<regex>/(?:\\.|[^/\\\n])+/[imslu]*) | (?P<name>\w+) | (?P<op>[()\[\]|*+?]) )""",
    re.VERBOSE,
)
ANY_TEXT = r"/(.|\n)*/"
_FREE = frozenset((ANY_TEXT, "/.*/", r"/[ \n]*/"))


def without(beginning: str) -> str:
    """Returns the expression of texts that do not begin with a terminal: they may end anywhere, so force nothing."""
    return f"{ANY_TEXT} & ~({beginning} {ANY_TEXT})"


_WITHOUT = re.compile(rf"\s*{re.escape(without('NAME'))}".replace("NAME", r"\w+"))


def of_pattern(pattern: str) -> float:
    """Returns the most bytes that a regular expression forces; inf if a count exceeds `MAX_COUNT`."""
    counts = [int(found[:9]) for found in _COUNT.findall(pattern)]
    return inf if max(counts, default=0) > MAX_COUNT else len(pattern.encode()) * prod(max(1, each) for each in counts)


def of_schema(schema: Mapping[str, Any]) -> float:
    """Returns the most bytes that a JSON schema forces; inf if a definition refers to itself."""
    found = _Schema(schema)
    num_bytes = found.num_bytes(schema, ())
    return num_bytes * prod(found.counts) if num_bytes else 0


class _Schema:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._has_patterns = '"pattern"' in json.dumps(root)  # else a length forces nothing
        self._known: dict[str, float] = {}  # bytes by reference
        self.counts: list[float] = []  # minimum counts of all parts: one may apply to items of another part

    def num_bytes(self, part: Any, path: tuple[str, ...]) -> float:
        """Returns the most bytes that a part of the schema forces. path: references followed to this part."""
        if isinstance(part, list):
            return sum(MARK_BYTES + self.num_bytes(each, path) for each in part)
        if not isinstance(part, Mapping):
            return _of_value(part)
        return sum(self._of_key(key, value, path) for key, value in part.items() if key not in _SAYS_NOTHING)

    def _of_key(self, key: str, value: Any, path: tuple[str, ...]) -> float:
        if key == "$ref" and isinstance(value, str):
            if value not in self._known:
                target = self._root.get("$defs", {}).get(value.removeprefix(PLACE))
                is_endless = target is None or value in path
                self._known[value] = inf if is_endless else self.num_bytes(target, (*path, value))
            return self._known[value]
        if key == "properties" and isinstance(value, Mapping):
            return sum(MARK_BYTES + len(name.encode()) + self.num_bytes(each, path) for name, each in value.items())
        if key == "patternProperties" and isinstance(value, Mapping):
            return sum(map(of_pattern, value)) + self._num_names * self.num_bytes([*value.values()], path)
        if key == "additionalProperties" and isinstance(value, Mapping):
            return self._num_names * self.num_bytes(value, path)
        if key in ("const", "enum"):
            return max(map(_of_value, value if key == "enum" and isinstance(value, list) else [value]), default=0)
        if key in ("anyOf", "oneOf") and isinstance(value, list):
            return max((self.num_bytes(each, path) for each in value), default=0)
        if key in ("minItems", "minProperties", "minLength") and isinstance(value, int | float):
            if key != "minLength" or self._has_patterns:
                self.counts.append(max(1, min(value, MAX_NUMBER)))
            return 0
        if key == "pattern" and isinstance(value, str):
            return FORMAT_BYTES if value in FORMATS.values() else of_pattern(value)
        return FORMAT_BYTES if key == "format" else self.num_bytes(value, path)

    @cached_property
    def _num_names(self) -> int:
        """Names in the whole schema: each may have a value by a pattern, or as an additional property of any part."""
        names, parts = set[str](), list[Any]([self._root])
        for part in parts:  # grows meanwhile
            if isinstance(part, Mapping):
                for found in (part.get("properties"), part.get("required")):
                    names.update(map(str, found) if isinstance(found, Mapping | list) else ())
                parts += part.values()
            elif isinstance(part, list):
                parts += part
        return max(1, len(names))


def _of_value(value: Any) -> float:
    """Returns the most bytes of a value's JSON text; inf for a number beyond MAX_NUMBER, or below its inverse."""
    if isinstance(value, list):
        return 2 + sum(2 + _of_value(each) for each in value)
    if isinstance(value, Mapping):
        return 2 + sum(MARK_BYTES + len(name.encode()) + _of_value(each) for name, each in value.items())
    is_long = isinstance(value, int | float) and value and not 1 / MAX_NUMBER < abs(value) < MAX_NUMBER
    return inf if is_long else len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def of_grammar(source: str, schemas: Mapping[str, float]) -> float:
    """Returns the most bytes that a grammar forces; inf if unknown. schemas: the same for its JSON rules, by name."""
    heads = list(_HEAD.finditer(source))
    ends = [*(each.start() for each in heads[1:]), len(source)]
    if not heads or source[: heads[0].start()].strip():
        return inf
    bodies = {head[1]: source[head.end() : end].rstrip() for head, end in zip(heads, ends, strict=True)}
    known: dict[str, float] = dict(schemas)

    def of_rule(name: str, path: tuple[str, ...]) -> float:
        if name not in known:
            known[name] = inf if name in path or name not in bodies else of_body(bodies[name], (*path, name))
        return known[name]

    def of_body(body: str, path: tuple[str, ...]) -> float:
        if _WITHOUT.fullmatch(body):
            return 0
        choices, depth, times, at = [0.0], 0, 1, 0
        while at < len(body):
            part = _PART.match(body, at)
            if part is None:
                return inf
            kind, text, at = part.lastgroup, part[part.lastgroup or 0], part.end()
            depth += (text in "([") - (text in ")]") if kind == "op" else 0
            times = 2 if kind == "op" and text in "*+" else times
            if kind == "op" and text == "|" and not depth:
                choices.append(0.0)
            elif kind == "literal":
                choices[-1] += len(text.encode())
            elif kind == "regex" and text not in _FREE:
                choices[-1] += of_pattern(text)
            elif kind == "name":
                choices[-1] += of_rule(text, path)
        return times * max(choices)

    return of_rule("start", ())
