"""Reads the JSON schemas of tools: references, types, and arguments that a model wrote as bare text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

DEFINITIONS = ("$defs", "definitions")
NAMED = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas")
"""Keywords whose members are schemas by names that are anybody's."""

DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas."""

OPTIONS = "x-guidance"
"""The keyword that llguidance reads options from."""

MAX_STEPS = 8
"""The most steps of a reference, and the most references that are followed one to the next."""


def referred(target: str, schema: Mapping[str, Any]) -> Any:
    """Returns the part of a schema that a reference like `#/$defs/Name` means; None where there is none."""
    part: Any = schema
    for step in _steps(target):
        part = part.get(step) if isinstance(part, dict) else None
    return part


def followed(wanted: Any, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns a part of a schema, what that refers to, and so on."""
    for _ in range(MAX_STEPS):
        if not isinstance(wanted, dict):
            return
        yield wanted
        target = wanted.get("$ref")
        wanted = referred(target, schema) if isinstance(target, str) else None


def without_definitions(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a schema, and apart from it the definitions that its references mean, which belong to the outermost."""
    return (
        {key: value for key, value in schema.items() if key not in DEFINITIONS},
        {key: schema[key] for key in DEFINITIONS if key in schema},
    )


def needed(wanted: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the definitions of a schema that a part of it refers to, and those that these refer to.

    All of them where a reference is no path to a definition: it may mean a name that stands anywhere.
    """
    _, definitions = without_definitions(schema)
    found = dict[str, dict[str, Any]]()
    left = list(_targets(wanted))
    while left:
        where, name = ([*_steps(left.pop()), "", ""])[:2]
        among = definitions.get(where)
        if not isinstance(among, dict) or name not in among:
            return definitions
        if name not in found.setdefault(where, {}):
            found[where][name] = among[name]
            left += _targets(among[name])
    return dict(found)


def has_options(schema: Any) -> bool:
    """Returns whether a schema, or one inside of it, says by `x-guidance` how it is to be kept."""
    left = [schema]
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            left += one if isinstance(one, list) else []
            continue
        if OPTIONS in one:
            return True
        for key, value in one.items():
            if key in NAMED and isinstance(value, dict):
                left += value.values()
            elif key not in DATA:
                left.append(value)
    return False


def _steps(target: str) -> list[str]:
    """Returns the members that a reference names, outermost first, as a JSON pointer in a fragment spells them."""
    steps = unquote(target).removeprefix("#/").split("/")[:MAX_STEPS]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _targets(part: Any) -> Iterator[str]:
    """Returns the references inside of a part of a schema."""
    left = [part]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(target := one.get("$ref"), str):
                yield target
            left += one.values()
        elif isinstance(one, list):
            left += one


MAX_PARTS = 64
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
    for _ in range(MAX_PARTS):
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
            left += choices[-MAX_PARTS:] if isinstance(choices, list) else []
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
