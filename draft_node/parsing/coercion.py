"""Arguments that a model wrote as bare text, made into JSON by the types that a tool's schema declares."""

import json
from collections.abc import Mapping
from typing import Any

from draft_node.parsing.references import followed, referred

MAX_STEPS = 64
"""The most parts of one parameter's schema that are looked at: references may be circular."""

PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Constants as models write them that have read much Python."""

MAX_CHOICES = 64
"""The most values of an enumeration whose types are looked at; where there are more, any may be text."""

KINDS = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def arguments_of(given: Mapping[str, str], schema: Mapping[str, Any]) -> str | None:
    """Returns a JSON object; None where no JSON stands for a value. One that is not of its types stays a text."""
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    values = {key: _value(text, declared.get(key), schema) for key, text in given.items()}
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
        if says is None:
            types |= _types_of_values(part)
        for name in ("anyOf", "oneOf", "allOf"):
            choices = part.get(name)
            left += choices[-MAX_STEPS:] if isinstance(choices, list) else []
        if isinstance(target := part.get("$ref"), str):
            left.append(referred(target, schema))
    return frozenset(types)


def choices_of(wanted: Any, schema: Mapping[str, Any]) -> list[Any] | None:
    """Returns the values that a parameter may have, of its types; None where they are not listed."""
    parts = list(followed(wanted, schema))
    choices = next((listed for part in parts if (listed := _listed(part)) is not None), None)
    types = next((part["type"] for part in parts if "type" in part), None)
    if choices is None or types is None:
        return choices
    allowed = types if isinstance(types, list) else [types]
    return [one for one in choices if kind_of(one) in allowed or (kind_of(one) == "integer" and "number" in allowed)]


def kind_of(value: Any) -> str:
    return KINDS.get(type(value), "string")


def _listed(part: Mapping[str, Any]) -> list[Any] | None:
    choices = [part["const"]] if "const" in part else part.get("enum")
    return choices if isinstance(choices, list) else None


def _types_of_values(part: Mapping[str, Any]) -> set[str]:
    """Returns the types of the values that are listed, where no types are named."""
    choices = _listed(part) or []
    return {*map(kind_of, choices[:MAX_CHOICES]), *(["string"] if len(choices) > MAX_CHOICES else [])}


def _value(text: str, wanted: Any, schema: Mapping[str, Any]) -> Any:
    choices, types = choices_of(wanted, schema) or [], types_of(wanted, schema)
    if not types or types == {"string"} or text in choices:
        return text
    try:
        value = json.loads(PYTHONS.get(text.strip(), text), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    if any(type(one) is type(value) and one == value for one in choices):
        return value
    kind = kind_of(value)
    if kind == "string" or "string" in types:  # where a text is allowed, only null may be meant otherwise
        return None if kind == "null" and "null" in types else text
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
