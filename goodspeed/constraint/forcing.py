"""Bounds, from a constraint's source, how many bytes it may leave no choice about in a row.

llguidance writes all of them out and tokenizes them, at each row of a mask: up to 3 us a byte, and more for patterns
(5 s for `a{60000}`). None of its limits counts that, and no trial sees what comes late in a text. So a constraint that
may force more than `MAX_BYTES` is compiled such that nothing is forced. The bound is coarse, and never too low: all
that is written in the source and may come together is added up.
"""

import json
import re
from collections.abc import Mapping
from math import inf, prod
from typing import Any

MAX_BYTES = 2_048
MAX_COUNT = 16
"""Repetitions in a pattern; a larger count takes it for unbounded, since alternatives cost the square of it."""

MAX_NUMBER = 1e9
"""Larger numbers, and those as near to 0, may be written with more digits than they are given."""

FORMAT_BYTES, MARK_BYTES = 64, 6  # what a `format` forces; quotes and separators around a name or a value

_SAYS_NOTHING = frozenset("$defs definitions title description default examples deprecated x-guidance".split())
_COUNT = re.compile(r"\{\s*(\d+)")
_HEAD = re.compile(r"^[?!]?(\w+)(?:\[\w+\])?[ \t]*:", re.MULTILINE)
_PART = re.compile(
    r"""\s*(?: (?P<comment>//[^\n]*|\#[^\n]*) | (?P<literal>"(?:\\.|[^"\\\n])*"i?|<[^<>\s]*>)
    | (?P<regex>/(?:\\.|[^/\\\n])+/[imslu]*) | (?P<name>\w+) | (?P<op>[()\[\]|*+?]) )""",
    re.VERBOSE,
)
_ANY_TEXT = frozenset((r"/(.|\n)*/", "/.*/", r"/[ \n]*/"))


def of_pattern(pattern: str) -> float:
    """Returns the most bytes that a regular expression forces; unbounded with a large count."""
    counts = [int(found[:9]) for found in _COUNT.findall(pattern)]
    return inf if max(counts, default=0) > MAX_COUNT else len(pattern.encode()) * prod(max(1, each) for each in counts)


def of_schema(schema: Mapping[str, Any]) -> float:
    """Returns the most bytes that a JSON schema forces; unbounded where a definition refers to itself."""
    found = _Schema(schema)
    num_bytes = found.num_bytes(schema, ())
    return num_bytes * prod(found.counts) if num_bytes else 0


class _Schema:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._has_patterns = '"pattern"' in json.dumps(root)  # else a length forces nothing
        self._known: dict[str, float] = {}  # of definitions
        self.counts: list[float] = []  # least ones, of all parts: they may hold for what another part says

    def num_bytes(self, part: Any, path: tuple[str, ...]) -> float:
        """Returns the bytes of a part of the schema; path: references that led here."""
        if isinstance(part, list):
            return sum(MARK_BYTES + self.num_bytes(each, path) for each in part)
        if not isinstance(part, Mapping):
            return _of_value(part)
        return sum(self._of_key(key, value, path) for key, value in part.items() if key not in _SAYS_NOTHING)

    def _of_key(self, key: str, value: Any, path: tuple[str, ...]) -> float:
        if key == "$ref" and isinstance(value, str):
            if value not in self._known:
                self._known[value] = inf if value in path else self.num_bytes(self._resolved(value), (*path, value))
            return self._known[value]
        if key in ("properties", "patternProperties") and isinstance(value, Mapping):
            names = map(of_pattern, value) if key == "patternProperties" else (len(name.encode()) for name in value)
            return sum(names) + sum(MARK_BYTES + self.num_bytes(each, path) for each in value.values())
        if key in ("const", "enum"):
            return max(map(_of_value, value if key == "enum" and isinstance(value, list) else [value]), default=0)
        if key in ("anyOf", "oneOf") and isinstance(value, list):
            return max((self.num_bytes(each, path) for each in value), default=0)
        if key in ("minItems", "minProperties", "minLength") and isinstance(value, int | float):
            if key != "minLength" or self._has_patterns:
                self.counts.append(max(1, min(value, MAX_NUMBER)))
            return 0
        if key == "pattern" and isinstance(value, str):
            return of_pattern(value)
        return FORMAT_BYTES if key == "format" else self.num_bytes(value, path)

    def _resolved(self, reference: str) -> Any:
        """Returns what a pointer from the root names; any other reference names all of it, which is unbounded."""
        found: Any = self._root
        for part in reference.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, Mapping) else {"$ref": reference}
        return {"$ref": reference} if found is None or "%" in reference or reference[:2] != "#/" else found


def _of_value(value: Any) -> float:
    """Returns the bytes of a value as it is written, at most."""
    if isinstance(value, list):
        return 2 + sum(2 + _of_value(each) for each in value)
    if isinstance(value, Mapping):
        return 2 + sum(MARK_BYTES + len(name.encode()) + _of_value(each) for name, each in value.items())
    is_long = isinstance(value, int | float) and value and not 1 / MAX_NUMBER < abs(value) < MAX_NUMBER
    return inf if is_long else len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def of_grammar(source: str, schemas: Mapping[str, float]) -> float:
    """Returns the most bytes that a grammar forces, and inf where that is not understood; schemas: of rules of JSON."""
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
            elif kind == "regex" and text not in _ANY_TEXT:
                choices[-1] += of_pattern(text)
            elif kind == "name":
                choices[-1] += of_rule(text, path)
        return times * max(choices)

    return of_rule("start", ())
