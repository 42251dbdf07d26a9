"""Finds the parts of a JSON schema that no finite value satisfies, such as a list of itself without an end.

llguidance would begin such a value where it is optional, and never end it.
"""

from collections.abc import Callable
from typing import Any

from goodspeed.constraint.references import PLACE, Part, with_subschemas

NO_TEXT = "no text satisfies it; make its recursion end, or remove a contradictory part"

KINDS = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def without_endless(schema: Part) -> Part:
    """Replaces by `false` what no finite value satisfies: llguidance would begin it, and never end it.

    ValueError if that is the whole schema.
    """
    defs: Part = schema.get("$defs", {})
    ending = set[str]()  # names of definitions that have a finite value
    num_before = -1
    while len(ending) > num_before:
        num_before = len(ending)
        for name in reversed(defs):  # most refer to later ones
            if name not in ending and _ends(defs[name], ending, {}):
                ending.add(name)
    if len(ending) == len(defs):
        return schema
    known: dict[int, bool] = {}
    if not _ends(schema, ending, known):
        raise ValueError(NO_TEXT)

    def pruned(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        return with_subschemas(part, pruned) if _ends(part, ending, known) else False

    return with_subschemas(schema, pruned)


def _ends(part: Any, ending: set[str], known: dict[int, bool]) -> bool:
    """False if no finite value satisfies a part. ending: definitions that have one; known: results by identity."""
    if not isinstance(part, dict):
        return part is not False
    if id(part) not in known:
        known[id(part)] = _has_end(part, lambda each: _ends(each, ending, known), ending)
    return known[id(part)]


def _has_end(part: Part, ends: Callable[[Any], bool], ending: set[str]) -> bool:
    if "$ref" in part and part["$ref"].removeprefix(PLACE) not in ending:
        return False
    if not all(map(ends, members_of(part, "allOf"))):
        return False
    if any(
        members and not any(map(ends, members)) for members in (members_of(part, "anyOf"), members_of(part, "oneOf"))
    ):
        return False
    if values_of(part) is not None:
        return True
    kinds = kinds_of(part)
    if kinds == {"object"}:
        return all(ends(_property(part, str(name))) for name in members_of(part, "required"))
    if kinds == {"array"}:
        tuples = members_of(part, "prefixItems") or members_of(part, "items")
        least = part.get("minItems", 0)
        rest = part.get("additionalItems" if isinstance(part.get("items"), list) else "items", True)
        needed = tuples[: int(min(max(least, 0), len(tuples)))] if isinstance(least, int | float) else []
        return all(map(ends, needed)) and (len(needed) == least or len(tuples) > len(needed) or ends(rest))
    return True


def _property(part: Part, name: str) -> Any:
    properties = part.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return True if "patternProperties" in part else part.get("additionalProperties", True)


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
