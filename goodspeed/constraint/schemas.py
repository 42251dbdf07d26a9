"""Rewrites a JSON schema such that llguidance keeps it exactly, and refuses what it would silently break.

llguidance lets some texts pass that do not satisfy the schema, as in the comments below. Where a rewritten schema can
express the same, it does; else a `ConstraintError` says what to change. A lenient schema (of a tool that is not strict)
loses what cannot be kept instead.
"""

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from goodspeed.constraint.references import DEFINITIONS, LISTS, MAPS, SINGLE, Part, Resolver, followed, with_subschemas
from goodspeed.errors import ConstraintError

_YEAR = "(?:[0-9][0-9][0-9][1-9]|[0-9][0-9][1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_LONG, _SHORT = "(?:0[13578]|1[02])-31", "(?:0[13-9]|1[0-2])-(?:29|30)"
DATE = f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|{_SHORT}|{_LONG})|{_LEAP}-02-29)"
TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
FORMATS = {"date": f"^{DATE}$", "time": f"^{TIME}$", "date-time": f"^{DATE}T{TIME}$"}
"""Patterns for formats: llguidance's own have a February 29 in every year, and a leap second in every minute."""

NAMING = ("properties", "patternProperties", "required")
"""Keywords that name properties."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
MAX_INTEGER, MIN_INTEGER = (1 << 63) - 1, -(1 << 63) + 1024
"""Bounds of integers that llguidance keeps; it has no pattern for the least one of 64 bits."""

MAX_EXACT = 1 << 53
"""From here on a float is no integer more or less than another, as llguidance makes of exclusive bounds."""

MAX_LEVELS = 3
"""Most levels of properties that are compared to see that two schemas have no value in common."""

_PATTERN_PART = re.compile(r"\\.?|\[(?:\\.|[^\]\\])*|\(\?(?!:|<[A-Za-z_$])<?.?", re.DOTALL)
"""An escape, a class of characters, or the beginning of a look-around or of a group with flags."""

_IN_CLASS = re.compile(r"\\.|[\[&~]|-(?=-)", re.DOTALL)
"""Within a class an escape, or what is another class or an operator in Rust."""

_UNKNOWN = frozenset("\\" + name for name in ("", *"bBk123456789"))
"""Escapes in patterns that cannot be kept."""

KINDS = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def enforceable(schema: Part, *, is_lenient: bool = False) -> tuple[Part, bool]:
    """Returns an equal schema that llguidance keeps, and whether names in its texts must have no escapes.

    ConstraintError with the reason if there is none.
    """
    rewriter = _Rewriter(schema, is_lenient)
    try:
        return rewriter.whole(), rewriter.has_open_names
    except ValueError as error:
        raise ConstraintError(str(error)) from error


class _Rewriter:
    """Applies the rules below to each part of a schema."""

    def __init__(self, root: Part, is_lenient: bool) -> None:
        self._root = root
        self._resolver = Resolver(root)
        self._is_lenient = is_lenient
        self._in_use = self._reachable()
        self._left = set(self._in_use)  # parts that are not rewritten yet
        self.has_open_names = False

    def _reachable(self) -> set[int]:
        """Returns the identities of the parts that say something, other than definitions without a reference."""
        found, left = set[int](), [self._root]
        while left:
            part = left.pop()
            if isinstance(part, dict) and id(part) not in found:
                found.add(id(part))
                left += list(followed(part, self._resolver))[1:2]
                with_subschemas({key: value for key, value in part.items() if key not in DEFINITIONS}, left.append)
        return found

    def whole(self) -> Part:
        """Returns the schema rewritten; ValueError for what cannot be kept."""
        found: Part = self._part(self._root)
        if self._left and not self._is_lenient:
            raise ValueError('a "$ref" leads to what is no part of the schema; put its target into "$defs"')
        return found

    def _part(self, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        self._left.discard(id(part))
        if id(part) not in self._in_use:  # says nothing, but may hold what does
            part = {key: value for key, value in part.items() if key in (*MAPS, *LISTS, *SINGLE)}
            return with_subschemas(part, self._part)
        rules: tuple[tuple[Callable[[Part], Part], tuple[str, ...]], ...] = (
            (self._referring, ("$ref",)),
            (self._text, ("pattern", "format")),
            (self._numbers, ("const", "enum", *BOUNDS)),
            (self._counted, ("minProperties",)),
            (self._named, ("patternProperties",)),
            (self._alternatives, ()),
        )
        for rule, keywords in rules:
            try:
                part = rule(part)
            except ValueError:
                if not self._is_lenient:
                    raise
                part = {key: value for key, value in part.items() if key not in keywords}
        return with_subschemas(part, self._part)

    def _referring(self, part: Part) -> Part:
        """Leaves out names of places, and `additionalItems` beside `prefixItems`, which llguidance would forget."""
        name = part.get("$id")
        if part is not self._root and isinstance(name, str) and not name.startswith("#"):
            raise ValueError(f'"$id": {name[:100]!r} below the root cannot be kept; leave it out')
        if "$ref" in part:
            self._resolver.target(part["$ref"])
        unwanted = ("$id", "id", *(("additionalItems",) if "prefixItems" in part else ()))
        return {key: value for key, value in part.items() if key not in unwanted}

    def _text(self, part: Part) -> Part:
        found, named = dict(part), part.get("format")
        if isinstance(pattern := part.get("pattern"), str):
            found["pattern"] = translated(pattern)
        if isinstance(named, str) and named in FORMATS:
            del found["format"]
            if "pattern" in found:
                found["allOf"] = [*members_of(found, "allOf"), {"pattern": FORMATS[named]}]
            else:
                found["pattern"] = FORMATS[named]
        return found

    def _numbers(self, part: Part) -> Part:
        """Refuses integers that a float does not have: llguidance would write others. Bounds end at 64 bits."""
        for value in _numbers_in([part.get("const"), part.get("enum")]):
            _check_exact(value, MAX_INTEGER)
        for key in BOUNDS:
            value = part.get(key)
            if isinstance(value, int | float) and abs(value) < MAX_INTEGER:
                _check_exact(value, MAX_EXACT if key.startswith("exclusive") else MAX_INTEGER)
        least = part.get("minimum")
        is_below = part.get("type") == "integer" and isinstance(least, int | float) and least < MIN_INTEGER
        return {**part, "minimum": MIN_INTEGER} if is_below else part

    def _counted(self, part: Part) -> Part:
        """Refuses more than one name where names are open: llguidance counts one that comes twice."""
        least = part.get("minProperties")
        is_open = part.get("additionalProperties") is not False or part.get("patternProperties")
        if isinstance(least, int | float) and least > 1 and is_open:
            what = f'"minProperties": {least} cannot be kept, since names that are not described may come twice'
            raise ValueError(f'{what}; leave it out, and name them in "required"')
        return part

    def _named(self, part: Part) -> Part:
        """Names with escapes are left out of texts of a part that is open: llguidance takes them for other names."""
        is_open = part.get("additionalProperties") is not False
        self.has_open_names |= is_open and any(key in part for key in NAMING)
        patterns = part.get("patternProperties")
        if not isinstance(patterns, dict):
            return part
        return {**part, "patternProperties": {translated(pattern): each for pattern, each in patterns.items()}}

    def _alternatives(self, part: Part) -> Part:
        """Refuses a `oneOf` whose members may have a value in common: llguidance takes it for `anyOf`."""
        members = [self._with_target(each) for each in members_of(part, "oneOf")]
        values = [set(map(_key, found)) for each in members if (found := values_of(each)) is not None]
        if len(values) == len(members):  # often hundreds, so all are compared at once
            are_apart = len(set().union(*values)) == sum(map(len, values))
        else:
            are_apart = all(self._are_apart(*pair) for pair in combinations(members, 2))
        if not are_apart:
            raise ValueError('the members of "oneOf" may have values in common, so it cannot be kept; write "anyOf"')
        return part

    def _are_apart(self, one: Part, other: Part, depth: int = 0) -> bool:
        """True if two schemas certainly have no value in common: by types, constants, or these of properties."""
        kinds, values, others = kinds_of(one) & kinds_of(other), values_of(one), values_of(other)
        if not kinds:
            return True
        if values is not None and others is not None:
            return set(map(_key, values)).isdisjoint(map(_key, others))
        left, right = one.get("properties"), other.get("properties")
        if kinds != {"object"} or depth == MAX_LEVELS or not isinstance(left, dict) or not isinstance(right, dict):
            return False
        required = {str(name) for each in (one, other) for name in members_of(each, "required")}
        return any(
            self._are_apart(self._with_target(left[name]), self._with_target(right[name]), depth + 1)
            for name in required & left.keys() & right.keys()
        )

    def _with_target(self, part: Any) -> Part:
        """Returns the keywords of a part and of that to which it refers: all of them hold."""
        return {key: value for each in followed(part, self._resolver) for key, value in each.items()}


def translated(pattern: str) -> str:
    """Translates a pattern of ECMA 262 where llguidance would read it otherwise, or refuse it with odd words."""

    def part(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("["):  # Rust has classes within classes, and operators between them
            return "[" + _IN_CLASS.sub(lambda each: each[0] if each[0][1:] else f"\\{each[0]}", text[1:])
        if text.startswith("(") or text in _UNKNOWN:
            what = "cannot be kept: no look-around, flags, word boundaries or references to groups can"
            raise ValueError(f'the pattern "{pattern[:100]}" has {text}, which {what}')
        return text

    return _PATTERN_PART.sub(part, pattern)


def _key(value: Any) -> Any:
    """Returns a hashable object that equal values of JSON have in common; all lists have one, and all objects."""
    return kind_of(value), None if isinstance(value, list | dict) else value


def _numbers_in(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list | dict):
            left += one if isinstance(one, list) else one.values()
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield one


def _check_exact(value: Any, most: int) -> None:
    """ValueError for an integer that is no float: llguidance reads numbers as floats."""
    if isinstance(value, int) and (abs(value) > most or int(float(value)) != value):
        raise ValueError(
            f"the number {str(value)[:40]} cannot be kept exactly; write one of at most 2**53, or a string"
        )


def members_of(part: Part, key: str) -> list[Any]:
    return found if isinstance(found := part.get(key), list) else []


def kind_of(value: Any) -> str:
    return KINDS.get(type(value), "")


def values_of(part: Part) -> list[Any] | None:
    return [part["const"]] if "const" in part else found if isinstance(found := part.get("enum"), list) else None


def kinds_of(part: Part) -> set[str]:
    """Returns the kinds of value that a part allows, as far as its own keywords say so."""
    types, values = part.get("type"), values_of(part)
    said = {"number" if each == "integer" else str(each) for each in (types if isinstance(types, list) else [types])}
    allowed = set(KINDS.values()) if types is None else said
    return allowed if values is None else allowed & set(map(kind_of, values))
