"""Reads tools' JSON schemas: references, types, and the conversion of bare-text arguments to JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

DEFINITIONS = ("$defs", "definitions")
NAMED = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas")
"""Keywords whose values map arbitrary names to schemas."""

DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are data, not schemas."""

OPTIONS = "x-guidance"
"""Keyword with llguidance's options."""

MAX_STEPS = 8
"""Most path steps of a reference, and most references followed in a chain."""


def referred(target: str, schema: Mapping[str, Any]) -> Any:
    """Resolves a reference like `#/$defs/Name` in a schema; None if there is no such part."""
    part: Any = schema
    for step in _steps(target):
        part = part.get(step) if isinstance(part, dict) else None
    return part


def followed(wanted: Any, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a part of a schema, then the target of its `$ref`, and so on."""
    for _ in range(MAX_STEPS):
        if not isinstance(wanted, dict):
            return
        yield wanted
        target = wanted.get("$ref")
        wanted = referred(target, schema) if isinstance(target, str) else None


def without_definitions(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits a schema into the rest and its definitions, which must move to the outermost schema."""
    return (
        {key: value for key, value in schema.items() if key not in DEFINITIONS},
        {key: schema[key] for key in DEFINITIONS if key in schema},
    )


def needed(wanted: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the definitions to which a part of a schema refers, directly or through other definitions.

    Returns all definitions if a reference is no path to one: it may be a name defined anywhere.
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


def may_be_call(schema: Mapping[str, Any]) -> bool:
    """True if JSON of a schema may be an object with a name and arguments, as a call is."""
    types, properties = schema.get("type", "object"), schema.get("properties")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        return False
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return True
    return isinstance(properties, dict) and "name" in properties and bool({"parameters", "arguments"} & set(properties))


def has_options(schema: Any) -> bool:
    """True if a schema, or one nested in it, sets llguidance options by `x-guidance`."""
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
    """Splits a reference (a JSON pointer in a URI fragment) into member names, outermost first."""
    steps = unquote(target).removeprefix("#/").split("/")[:MAX_STEPS]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _targets(part: Any) -> Iterator[str]:
    """Yields the references in a part of a schema."""
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
"""Most parts of one parameter's schema that are examined: references may be circular."""

PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Python constants, which models often write instead of JSON's."""

MAX_CHOICES = 64
"""Most values of an enumeration whose types are examined; a longer one is taken to allow strings as well."""

KINDS = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def arguments_of(given: Mapping[str, str], schema: Mapping[str, Any]) -> str | None:
    """Converts bare-text arguments to a JSON object. A value that matches none of its types stays a string.

    given: text by parameter; schema: of the parameters. None if JSON cannot express a value.
    """
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    values = {key: _value(text, declared.get(key), schema) for key, text in given.items()}
    try:
        written = json.dumps(values, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError):  # 1e999 is infinite; lone surrogates are no UTF-8
        return None
    return written


def types_of(wanted: Any, schema: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of a parameter's allowed types; empty if its schema does not restrict them."""
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
    """Returns a parameter's enumerated values that match its types; None if its schema enumerates none."""
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
    """Returns the types of the enumerated values."""
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
    if kind == "string" or "string" in types:  # a string is allowed: only null is converted
        return None if kind == "null" and "null" in types else text
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
