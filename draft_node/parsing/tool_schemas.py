"""Reads tools' JSON schemas: types, and the conversion of bare-text arguments to JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from goodspeed.constraint.references import Part, Resolver, followed, standalone
from goodspeed.constraint.schemas import members_of, values_of


def is_of_object(schema: Mapping[str, Any]) -> bool:
    """True if a schema's own `type` allows objects, or is missing."""
    types = schema.get("type", "object")
    return "object" in types if isinstance(types, list) else types == "object"


def parameters_of(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Returns a schema's properties and the names of the required ones, also those behind its `$ref` and `allOf`."""
    found, names = dict[str, Any](), list[Any]()
    for part in _parts(schema):
        properties, required = part.get("properties"), part.get("required")
        for key, wanted in properties.items() if isinstance(properties, dict) else ():
            found[key] = {"allOf": [found[key], wanted]} if key in found else wanted
        names += required if isinstance(required, list) else []
    return found, names


def check_expressible(name: str, schema: Mapping[str, Any]) -> None:
    """Raises ValueError for parameters whose schema says more than what each of them is."""
    standalone(schema, schema)  # raises for a reference that leads nowhere
    found = sorted(key for part in _parts(schema) for key in BETWEEN_PARAMETERS & part.keys() if part[key] != 0)
    if found:
        what = f"the parameters of {name} have {found[0]!r}, which this model's calls cannot keep"
        raise ValueError(f"{what}; describe each parameter under `properties`, or leave `strict` out")


def _parts(schema: Mapping[str, Any]) -> Iterator[Part]:
    """Yields the parts of a schema that all hold: itself, those behind its `$ref`, and those of its `allOf`."""
    resolver, left = Resolver(schema), [schema]
    for _ in range(MAX_PARTS):
        if not left:
            return
        chain = [*followed(left.pop(0), resolver)]
        yield from chain
        left += [member for part in chain for member in members_of(part, "allOf")[:MAX_PARTS]]


def check_parameters(name: str, properties: Mapping[str, Any], required: Sequence[Any]) -> None:
    """Raises ValueError for a parameter name that cannot be parsed back, or a required one that is not described."""
    for key in properties:
        if not is_legible(key):
            what = f"the parameter {key[:64]!r} of {name} cannot be called by this model"
            raise ValueError(f"{what}: names have no '>', line break, or blank at an end")
    for key in required:
        if not isinstance(key, str) or key not in properties:
            what = f"the parameter {str(key)[:64]!r} of {name} is required, but not one of its properties"
            raise ValueError(f"{what}; describe it there")


def is_legible(key: str) -> bool:
    """True if the parser reads a parameter of this name back unchanged."""
    return bool(key) and key == key.strip() and not {">", "\n"} & set(key)


def may_be_call(schema: Mapping[str, Any]) -> bool:
    """True if JSON of a schema may be an object with a name and arguments, as a call is."""
    properties = schema.get("properties")
    if not is_of_object(schema):
        return False
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return True
    return isinstance(properties, dict) and "name" in properties and bool({"parameters", "arguments"} & set(properties))


BETWEEN_PARAMETERS = frozenset(
    {"anyOf", "oneOf", "not", "if", "minProperties", "maxProperties", "patternProperties"}
    | {"dependencies", "dependentRequired", "dependentSchemas"}
)
"""Keywords of an object that hold between its members, or for names that it does not list."""

MAX_PARTS = 64
"""Most parts of one parameter's schema that are examined: references may be circular."""

CONSTANTS = {"True": "true", "False": "false", "None": "null"}
"""Python's constants, which models often write instead of JSON's."""

_PYTHONS = re.compile(
    r""" "[^"\\]*(?:\\.[^"\\]*)*"? | '(?P<quoted>[^'\\]*(?:\\.[^'\\]*)*)(?P<end>'?) | \b(?:True|False|None)\b """,
    re.DOTALL | re.VERBOSE,
)
_QUOTES = re.compile(r'\\.|"', re.DOTALL)

MAX_EXACT = 1 << 53
"""Largest float that is converted to the integer that it is."""

MAX_CHOICES = 64
"""Most values of an enumeration whose types are examined; a longer one is taken to allow strings as well."""

MAX_LISTED = 2048
"""Most values that are collected of `anyOf` and its like; of more, any text is allowed."""

MEMBER = 16
"""Values for which each of their members counts."""

KINDS = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def arguments_of(given: Mapping[str, str], schema: Mapping[str, Any]) -> str | None:
    """Converts bare-text arguments to a JSON object. A value that matches none of its types stays a string.

    given: text by parameter; schema: of the parameters. None if JSON cannot express a value.
    """
    declared, resolver = parameters_of(schema)[0], Resolver(schema)
    values = {key: _value(text, declared.get(key), resolver) for key, text in given.items()}
    try:
        written = json.dumps(values, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError):  # 1e999 is infinite; lone surrogates are no UTF-8
        return None
    return written


def types_of(wanted: Any, resolver: Resolver) -> frozenset[str]:
    """Returns the names of a parameter's allowed types; empty if its schema does not restrict them.

    `"nullable": true` is OpenAPI's way to allow null.
    """
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
            left += members_of(part, name)[-MAX_PARTS:]
        left += [*followed(part, resolver)][1:2]
        if types and part.get("nullable") is True:
            types.add("null")
    return frozenset(types)


def choices_of(wanted: Any, resolver: Resolver) -> list[Any] | None:
    """Returns a parameter's enumerated values that match its types; None if its schema enumerates none."""
    parts = list(followed(wanted, resolver))
    choices, budget = _first(map(values_of, parts)), [MAX_LISTED]
    if choices is None:
        choices = _first(_listed(part, resolver, budget) for part in parts)
    types = next((part["type"] for part in parts if "type" in part), None)
    if choices is None or types is None:
        return choices
    allowed = types if isinstance(types, list) else [types]
    return [one for one in choices if kind_of(one) in allowed or (kind_of(one) == "integer" and "number" in allowed)]


def _listed(part: Part, resolver: Resolver, budget: list[int]) -> list[Any] | None:
    """Returns the values that a part enumerates itself, or by members of which one (`anyOf`) or all (`allOf`) hold.

    budget: parts and values that may yet be looked at; without any left, nothing is enumerated.
    """
    if (own := values_of(part)) is not None:
        budget[0] -= len(own)
        return own if budget[0] > 0 else None
    if part.get("type") == "null":
        return [None]

    def each(name: str) -> Iterator[list[Any] | None]:
        """The values of each member."""
        for member in members_of(part, name):
            budget[0] -= MEMBER
            if budget[0] <= 0:
                yield None
                return
            yield _first(_listed(one, resolver, budget) for one in followed(member, resolver))

    for name in ("anyOf", "oneOf"):
        some = list(takewhile(lambda one: one is not None, each(name)))
        if some and len(some) == len(members_of(part, name)):
            return [value for one in some for value in one or ()]
    return _first(each("allOf"))


def _first(some: Iterable[list[Any] | None]) -> list[Any] | None:
    return next((one for one in some if one is not None), None)


def kind_of(value: Any) -> str:
    return KINDS.get(type(value), "string")


def _types_of_values(part: Part) -> set[str]:
    """Returns the types of the enumerated values."""
    choices = values_of(part) or []
    return {*map(kind_of, choices[:MAX_CHOICES]), *(["string"] if len(choices) > MAX_CHOICES else [])}


def _value(text: str, wanted: Any, resolver: Resolver) -> Any:
    choices, types = choices_of(wanted, resolver) or [], types_of(wanted, resolver)
    if not types or types == {"string"} or text in choices:
        return text
    try:
        value = _read(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        value = int(value) if abs(value) <= MAX_EXACT else value  # 5.0 is an integer of JSON Schema
    if any(type(one) is type(value) and one == value for one in choices):
        return value
    kind = kind_of(value)
    if kind == "string" or "string" in types:  # a string is allowed: only null is converted
        return None if kind == "null" and "null" in types else text
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _read(text: str) -> Any:
    """Reads JSON, or the same as Python writes it: with its constants, and strings in single quotes."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return json.loads(_PYTHONS.sub(_as_json, text), parse_constant=_refuse)


def _as_json(found: re.Match[str]) -> str:
    if not found["end"]:
        return CONSTANTS.get(found[0], found[0])
    return '"' + _QUOTES.sub(lambda each: {"\\'": "'", '"': '\\"'}.get(each[0], each[0]), found["quoted"]) + '"'


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
