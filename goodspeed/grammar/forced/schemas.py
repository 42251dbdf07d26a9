"""The longest run that JSON of a schema may be forced to have."""

import json
from collections.abc import Mapping
from decimal import Decimal
from math import inf, prod
from typing import Any

from goodspeed.grammar.forced.runs import ENDLESS, Run, broken, fixed, one_of, optional, sequence, times
from goodspeed.grammar.references import is_plain, resolve
from goodspeed.grammar.repeats import MAX_WRITTEN_OUT, longest_way

_SAYS_NOTHING = frozenset(
    "title description default examples deprecated readOnly writeOnly "
    "$comment $schema $defs definitions x-guidance".split()
)
_KNOWN = frozenset(
    "type properties required additionalProperties maxProperties items prefixItems minItems maxItems pattern format "
    "minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()
)
MAX_VISITS = 20_000
"""Parts that hold together, of the whole schema; the run of those beyond is taken for unbounded."""

LARGE = 1e9
"""Numbers that are larger may be written with more digits than they are given."""

_COUNTS = ("minItems", "minLength", "minProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def of_schema(schema: object) -> Run:
    """Returns the run of JSON that keeps a schema."""
    return _Schema(schema).run(schema, ("#",))


class _Schema:
    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[str, Run] = {}  # of definitions
        self._num_visits = 0

    def run(self, schema: object, path: tuple[str, ...]) -> Run:
        """Returns the run of a part of the schema; path: references that led here."""
        if not isinstance(schema, Mapping):
            return broken()
        says = {key: value for key, value in schema.items() if key not in _SAYS_NOTHING}
        if len(says) == 1 and isinstance(says.get("$ref"), str):
            return self._referred(says["$ref"], path)
        for key in ("allOf", "anyOf", "oneOf"):
            choices = says.get(key)
            if len(says) == 1 and isinstance(choices, list) and (key != "allOf" or len(choices) == 1):
                return one_of(self.run(each, path) for each in choices)
        if says.keys() <= {"type", "const"} and "const" in says:
            return fixed(_num_bytes(says["const"]))
        if says.keys() <= {"type", "enum"} and isinstance(says.get("enum"), list):
            return _enum(says["enum"])
        return self._of_types(says, path) if says.keys() <= _KNOWN else fixed(self._together(says, path))

    def _together(self, part: Mapping[str, Any], path: tuple[str, ...]) -> float:
        """Returns the most bytes of parts that hold together: all that is below, as often as all counts multiply to."""
        counts = [1.0]
        return self._written_out(part, path, counts) * prod(counts)

    def _written_out(self, part: Any, path: tuple[str, ...], counts: list[float]) -> float:
        """Returns the bytes of all that is below, but for the counts, which are put into the list."""
        self._num_visits += 1
        if self._num_visits > MAX_VISITS:
            return inf
        if isinstance(part, list):
            return sum(2 + self._written_out(each, path, counts) for each in part)
        if not isinstance(part, Mapping):
            return inf if isinstance(part, int | float) and abs(part) > LARGE else _num_bytes(part)
        num_bytes = 0.0
        for key, value in part.items():
            if key == "$ref":
                is_again = not isinstance(value, str) or value in path or not is_plain(value)
                there = None if is_again else resolve(self._root, value)
                num_bytes += inf if is_again else self._written_out(there, (*path, value), counts)
            elif key not in ("$defs", "definitions"):
                counts.append(max(1, _count(part, key)) if key in _COUNTS else 1)
                num_bytes += 6 + _num_bytes(key) + self._written_out(value, path, counts)
                num_bytes += 4 * longest_way(value) if key == "pattern" and isinstance(value, str) else 0
                if key == "patternProperties" and isinstance(value, Mapping):
                    num_bytes += 4 * sum(map(longest_way, value))
        return num_bytes

    def _referred(self, reference: str, path: tuple[str, ...]) -> Run:
        if reference in path:
            return ENDLESS
        if reference not in self._known:
            found = self.run(resolve(self._root, reference), (*path, reference))
            self._known[reference] = found._replace(is_endless=False)  # it may be so on this path only
            return found
        return self._known[reference]

    def _of_types(self, says: Mapping[str, Any], path: tuple[str, ...]) -> Run:
        types = says.get("type", ["object", "array", "string", "number", "boolean", "null"])
        names = types if isinstance(types, list) else [types]
        return one_of(self._of_type(name, says, path) for name in names)

    def _of_type(self, name: object, says: Mapping[str, Any], path: tuple[str, ...]) -> Run:
        match name:
            case "object":
                return self._object(says, path)
            case "array":
                return self._array(says, path)
            case "string":
                return _string(says)
            case "number" | "integer":
                return _number(says)
            case "boolean":
                return broken(len("false"))
        return fixed(len("null"))

    def _object(self, says: Mapping[str, Any], path: tuple[str, ...]) -> Run:
        properties, required = says.get("properties"), says.get("required")
        properties = properties if isinstance(properties, Mapping) else {}
        required = [key for key in required if isinstance(key, str)] if isinstance(required, list) else []
        others = self.run(says.get("additionalProperties", True), path)
        parts = [fixed(1)]
        for key in dict.fromkeys([*properties, *required]):
            value = self.run(properties[key], path) if key in properties else others
            part = sequence((fixed(_num_bytes(key) + len(", : ")), value))
            parts.append(part if key in required else optional(part))
        return sequence((*parts, optional(sequence((broken(6), others))), fixed(1)))

    def _array(self, says: Mapping[str, Any], path: tuple[str, ...]) -> Run:
        items, first, least = says.get("items", True), says.get("prefixItems"), int(_count(says, "minItems"))
        first = first if isinstance(first, list) else items if isinstance(items, list) else []
        listed = [sequence((fixed(2), self.run(each, path))) for each in first]
        listed = [each if place < least else optional(each) for place, each in enumerate(listed)]
        other = sequence((fixed(2), self.run(True if isinstance(items, list) else items, path)))
        return sequence((fixed(1), *listed, times(other, max(0, least - len(first))), optional(other), fixed(1)))


def _enum(values: list[Any]) -> Run:
    """Texts that differ have a choice in them; of others the type, or how they are written, may leave one."""
    longest = max((_num_bytes(each) for each in values), default=0)
    is_choice = all(isinstance(each, str) for each in values) and len(set(values)) > 1
    return broken(longest) if is_choice else fixed(longest)


def _string(says: Mapping[str, Any]) -> Run:
    if "pattern" not in says:
        return fixed(2) if says.get("maxLength") == 0 else broken(2)
    return fixed(2 + 4 * longest_way(str(says["pattern"])) + 4 * _count(says, "minLength"))


def _number(says: Mapping[str, Any]) -> Run:
    """A number is free where it has a bound on one side only, or bounds that leave it a choice of digits."""
    given = {key: Decimal(repr(says[key])) for key in _BOUNDS if _is_number(says.get(key))}
    longest = max((len(f"{each:f}") for each in given.values()), default=1)
    is_range = given.keys() == {"minimum", "maximum"}
    is_free = len(given) < 2 or (is_range and given["maximum"] - given["minimum"] >= 1)
    return broken(longest) if is_free and "multipleOf" not in says else fixed(longest)


def _count(says: Mapping[str, Any], key: str) -> float:
    """Returns a least count; of one that is larger than any that is served, the largest."""
    return min(says[key], MAX_WRITTEN_OUT) if _is_number(says.get(key)) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _num_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
