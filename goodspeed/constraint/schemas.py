"""Rewrites a JSON schema such that llguidance keeps it exactly, and refuses what it would silently break.

llguidance lets some texts pass that do not satisfy the schema, as in the comments below. Where a rewritten schema can
express the same, it does; else a `ConstraintError` says what to change. A lenient schema (of a tool that is not strict)
loses what cannot be kept instead.
"""

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from goodspeed.constraint.patterns import shown, translated
from goodspeed.constraint.references import OLD_DRAFTS, PLACE, Part, is_of, standalone, with_subschemas
from goodspeed.errors import ConstraintError

_YEAR = "(?:[0-9][0-9][0-9][1-9]|[0-9][0-9][1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_LONG, _SHORT = "(?:0[13578]|1[02])-31", "(?:0[13-9]|1[0-2])-(?:29|30)"
DATE = f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|{_SHORT}|{_LONG})|{_LEAP}-02-29)"
TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
FORMATS = {"date": f"^{DATE}$", "time": f"^{TIME}$", "date-time": f"^{DATE}T{TIME}$"}
"""Patterns for formats: llguidance's own have a February 29 in every year, and a leap second in every minute."""

MAX_HOSTNAME = 253

NAMING = ("properties", "patternProperties", "required")
"""Keywords that name properties."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
MAX_INTEGER, MIN_INTEGER = (1 << 63) - 1, -(1 << 63) + 1024
"""Bounds of integers that llguidance keeps; it has no pattern for the least one of 64 bits."""

MAX_EXACT = 1 << 53
"""From here on a float is no integer more or less than another, as llguidance makes of exclusive bounds."""

MAX_MEMBERS = 64
"""Most members of a `oneOf`, each two of which are compared."""

MAX_LEVELS, MAX_CHAIN = 3, 4
"""Most levels, and references in a row, that are compared to see that two schemas have no value in common."""

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[(?!\^)[^\]]*\]")
"""A class of some characters, which has few matches."""

_MANY = ("*", "+", ".", ",}", "[^")
"""Parts of a pattern that has many matches."""

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
    try:
        found = standalone(schema, schema, is_lenient=is_lenient)
        rewriter = _Rewriter(found, is_lenient)
        return rewriter.part(found), rewriter.has_open_names
    except ValueError as error:
        raise ConstraintError(str(error)) from error


class _Rewriter:
    """Applies the rules below to each part of a schema without other references than to its `$defs`."""

    def __init__(self, root: Part, is_lenient: bool) -> None:
        self._defs: Part = root.get("$defs", {})
        self._is_lenient = is_lenient
        self._has_tuples = is_of(root, OLD_DRAFTS)
        self.has_open_names = False

    def part(self, part: Any) -> Any:
        """Returns a part rewritten; ValueError for what cannot be kept."""
        if not isinstance(part, dict):
            return part
        rules: tuple[tuple[Callable[[Part], Part], tuple[str, ...]], ...] = (
            (self._text, ("pattern", "format")),
            (self._numbers, ("const", "enum", *BOUNDS)),
            (self._tuples, ()),
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
        return with_subschemas(part, self.part)

    def _text(self, part: Part) -> Part:
        """Translates patterns. llguidance takes `"format": "unknown"` for any text, and counts no host's length."""
        found, named = dict(part), part.get("format")
        if isinstance(pattern := part.get("pattern"), str):
            found["pattern"] = translated(pattern)
        if named == "unknown":
            raise ValueError("Unknown format: unknown")
        if named == "hostname":
            most = part.get("maxLength", MAX_HOSTNAME)
            found["maxLength"] = min(most, MAX_HOSTNAME) if isinstance(most, int) else most
        if isinstance(named, str) and named in FORMATS:
            del found["format"]
            if "pattern" in found:
                found["allOf"] = [*members_of(found, "allOf"), {"pattern": FORMATS[named]}]
            else:
                found["pattern"] = FORMATS[named]
        return found

    def _numbers(self, part: Part) -> Part:
        """Refuses numbers that a float does not have: llguidance would write others. Bounds end at 64 bits."""
        for value in _numbers_in([part.get("const"), part.get("enum")]):
            _check_exact(value)
        types, found = part.get("type"), dict(part)
        is_integer = types == "integer" or (isinstance(types, list) and "integer" in types)
        for key in BOUNDS:
            value = part.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if abs(value) > MAX_INTEGER and is_integer:
                if (value > 0) is not key.lower().endswith("maximum"):
                    raise ValueError(f'"{key}": {value} cannot be kept for integers; at most 2**63 can')
                found[key] = MAX_INTEGER if value > 0 else MIN_INTEGER
            elif is_integer and key.startswith("exclusive") and abs(value) >= MAX_EXACT:
                raise ValueError(f'"{key}": {value} cannot be kept for integers; write {key[9:].lower()}')
            elif value != MAX_INTEGER or types != "integer":
                _check_exact(value)
        return found

    def _tuples(self, part: Part) -> Part:
        """Leaves out `additionalItems`, which draft 2020-12 does not know: llguidance would forget `prefixItems`."""
        if self._has_tuples or isinstance(part.get("items"), list):
            return part
        return {key: value for key, value in part.items() if key != "additionalItems"}

    def _counted(self, part: Part) -> Part:
        """Refuses more names than a text must have different ones: llguidance counts one that comes twice."""
        least, required = part.get("minProperties"), part.get("required")
        num_required = len(set(map(str, required))) if isinstance(required, list) else 0
        if isinstance(least, int | float) and least - num_required > 1 and _is_open(part):
            what = f'"minProperties": {least} cannot be kept, since names that are not described may come twice'
            raise ValueError(f'{what}; name all but one of them in "required"')
        return part

    def _named(self, part: Part) -> Part:
        """Translates patterns of names. Refuses one whose matches may all be described: where none is left, llguidance
        would begin another name, and be stuck there.

        Names with escapes are left out of the texts of a part that is open: llguidance takes them for others than those
        that are described.
        """
        is_open = part.get("additionalProperties") is not False
        self.has_open_names |= any(key in part for key in NAMING) and is_open
        patterns = part.get("patternProperties")
        if not isinstance(patterns, dict):
            return part
        for pattern in patterns:
            plain = _CLASS.sub("", _ESCAPE.sub("", pattern))
            has_few = {"^", "$"} <= set(plain) and not any(each in plain for each in _MANY)
            if has_few and not is_open and (part.get("properties") or part.get("required")):
                raise ValueError(f'{shown(pattern)} may match no name but described ones; write "properties" instead')
        return {**part, "patternProperties": {translated(pattern): each for pattern, each in patterns.items()}}

    def _alternatives(self, part: Part) -> Part:
        """Writes `anyOf` for a `oneOf` whose members have no value in common: llguidance sees that in few."""
        members = members_of(part, "oneOf")
        is_compared = 0 < len(members) <= MAX_MEMBERS
        if not is_compared or not all(self._are_apart(*pair, 0) for pair in combinations(members, 2)):
            return part
        if "anyOf" not in part:
            return {("anyOf" if key == "oneOf" else key): value for key, value in part.items()}
        found = {key: value for key, value in part.items() if key != "oneOf"}
        return {**found, "allOf": [*members_of(part, "allOf"), {"anyOf": members}]}

    def _together(self, part: Any) -> list[Part]:
        """Returns the parts that apply together with a part: itself, and those to which it refers."""
        found = list[Part]()
        while isinstance(part, dict) and len(found) < MAX_CHAIN:
            found.append(part)
            part = self._defs.get(part["$ref"].removeprefix(PLACE)) if "$ref" in part else None
        return found

    def _are_apart(self, one: Any, other: Any, depth: int) -> bool:
        """True if two schemas certainly have no value in common."""
        if one is False or other is False:
            return True
        pairs = [(left, right) for left in self._together(one) for right in self._together(other)]
        return depth < MAX_LEVELS and any(self._have_nothing(left, right, depth) for left, right in pairs)

    def _have_nothing(self, one: Part, other: Part, depth: int) -> bool:
        kinds = kinds_of(one) & kinds_of(other)
        if not kinds:
            return True
        these, those = values_of(one), values_of(other)
        if these is not None and those is not None:
            return set(map(_key, these)).isdisjoint(map(_key, those))
        left, right = one.get("properties"), other.get("properties")
        if kinds != {"object"} or not isinstance(left, dict) or not isinstance(right, dict):
            return False
        required = {str(name) for part in (one, other) for name in members_of(part, "required")}
        both = required & left.keys() & right.keys()
        return any(self._are_apart(left[name], right[name], depth + 1) for name in both)


def _key(value: Any) -> Any:
    """Returns a hashable object that equal values of JSON have in common, and no others."""
    if isinstance(value, dict):
        return "object", frozenset((name, _key(each)) for name, each in value.items())
    return kind_of(value), tuple(map(_key, value)) if isinstance(value, list) else value


def _is_open(part: Part) -> bool:
    """True if a part allows names that it does not describe."""
    return part.get("additionalProperties") is not False or bool(part.get("patternProperties"))


def _numbers_in(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list | dict):
            left += one if isinstance(one, list) else one.values()
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield one


def _check_exact(value: Any) -> None:
    """ValueError for an integer that is no float: llguidance reads numbers as floats."""
    if isinstance(value, int) and (abs(value) > MAX_INTEGER or int(float(value)) != value):
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
