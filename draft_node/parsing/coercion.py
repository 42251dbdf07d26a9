"""Arguments that a model wrote as bare text, made into JSON by the types that a tool's schema declares."""

import json
from collections.abc import Mapping
from typing import Any

MAX_STEPS = 64
"""The most parts of one parameter's schema that are looked at: references may be circular."""

PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Constants as models write them that have read much Python."""

KINDS = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def arguments_of(given: Mapping[str, str], schema: Mapping[str, Any]) -> str | None:
    """Returns a JSON object; None where no JSON stands for a value. One that is not of its types stays a text."""
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    values = {key: _value(text, types_of(declared.get(key), schema)) for key, text in given.items()}
    try:
        written = json.dumps(values, ensure_ascii=False, allow_nan=False)
        written.encode()
    except ValueError:  # 1e999 is no number for others; lone surrogates are no text
        return None
    return written


def types_of(wanted: Any, schema: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of the types that a parameter may have; none where its schema says nothing of it."""
    types, left = set[str](), [wanted]
    for _ in range(MAX_STEPS):
        part = left.pop() if left else None
        if not isinstance(part, dict):
            if left:
                continue
            break
        says = part.get("type")
        types |= {one for one in (says if isinstance(says, list) else [says]) if isinstance(one, str)}
        for name in ("anyOf", "oneOf", "allOf"):
            choices = part.get(name)
            left += choices if isinstance(choices, list) else []
        if isinstance(target := part.get("$ref"), str):
            left.append(_referred(target, schema))
    return frozenset(types)


def _referred(target: str, schema: Mapping[str, Any]) -> Any:
    """Returns the part of a schema that a reference like `#/$defs/Name` means."""
    part: Any = schema
    for step in target.removeprefix("#/").split("/")[:8]:
        part = part.get(step) if isinstance(part, dict) else None
    return part


def _value(text: str, types: frozenset[str]) -> Any:
    if not types or types == {"string"}:
        return text
    try:
        value = json.loads(PYTHONS.get(text.strip(), text), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    kind = KINDS.get(type(value), "string")
    if kind == "string" or "string" in types:  # where a text is allowed, only null may be meant otherwise
        return None if kind == "null" and "null" in types else text
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
