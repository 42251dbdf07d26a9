"""Follows the references in a JSON schema: pointers from its root, such as `#/$defs/name`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

DEFINITIONS = ("$defs", "definitions")
MAPS = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas", "dependencies")
"""Keywords whose values map arbitrary names to schemas."""

LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SINGLE = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)

MAX_CHAIN = 8
"""Most references that `followed` follows: they may be circular."""

Part = dict[str, Any]


def with_subschemas(part: Part, change: Callable[[Any], Any]) -> Part:
    """Returns a copy of a part of a schema with each schema directly within it changed; data stay as they are."""
    found: Part = {}
    for key, value in part.items():
        if key in MAPS and isinstance(value, dict):
            found[key] = {name: change(each) if isinstance(each, dict | bool) else each for name, each in value.items()}
        elif key in LISTS and isinstance(value, list):
            found[key] = [change(each) for each in value]
        else:
            found[key] = change(value) if key in SINGLE else value
    return found


def moved(part: Any, place: str) -> Any:
    """Returns a schema whose references lead to its own parts where it stands in another one. place: a pointer there"""
    if not isinstance(part, dict):
        return part
    found = with_subschemas(part, lambda each: moved(each, place))
    if isinstance(reference := found.get("$ref"), str) and reference.startswith("#"):
        found["$ref"] = place + reference[1:]
    return found


class Resolver:
    """Finds what the references in one schema refer to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def target(self, reference: Any) -> Any:
        """Returns the part to which the value of a `$ref` refers; ValueError if there is none."""
        shown = f'"$ref": {str(reference)[:100]!r}'
        if not isinstance(reference, str) or not reference.startswith("#"):
            what = "leads out of the schema, and nothing is fetched"
            raise ValueError(f'{shown} {what}; put its target into "$defs", and write "$ref": "#/$defs/name"')
        found: Any = self._root if reference == "#" or reference.startswith("#/") else None
        for step in unquote(reference).split("/")[1:]:
            if isinstance(found, list):
                found = found[int(step)] if step.isascii() and step.isdecimal() and int(step) < len(found) else None
            else:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if isinstance(found, Mapping) else None
        if found is None:
            raise ValueError(f"{shown} does not exist in the schema; write a pointer, such as #/$defs/name")
        return found


def followed(wanted: Any, resolver: Resolver) -> Iterator[Part]:
    """Yields a part of a schema, then the target of its reference, and so on, as far as they can be resolved."""
    for _ in range(MAX_CHAIN):
        if not isinstance(wanted, dict):
            return
        yield wanted
        try:
            wanted = resolver.target(wanted["$ref"]) if "$ref" in wanted else None
        except ValueError:
            return
